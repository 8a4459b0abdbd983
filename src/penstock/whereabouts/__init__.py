"""Where a server has a message: the entries that it is on topics, and how it stands for each group. Changes nothing."""

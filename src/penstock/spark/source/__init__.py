"""Where reading begins, what each batch holds, and what was lost."""

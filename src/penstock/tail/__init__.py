"""Reading a topic without a group: everybody sees everything, from wherever they like, at their own pace."""

"""What is wrong, why something is stuck, and what to do: rules over facts, for the command line and for dashboards."""

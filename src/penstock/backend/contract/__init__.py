"""What each verb of a stream server promises, by what it is for."""

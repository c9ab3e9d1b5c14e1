"""One request to the server: reading it, its limits, its log line, and writing the response."""

"""The application, and the process that serves it: listening sockets, connections, start and stop."""

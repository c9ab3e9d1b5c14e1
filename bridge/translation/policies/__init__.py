"""What changes a request or an answer between two dialects, without I/O: stages, names of tools, signatures."""

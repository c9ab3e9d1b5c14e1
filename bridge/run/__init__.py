"""One request, from decoded to its last event: attempts at backends, retries, time limits, cancellation."""

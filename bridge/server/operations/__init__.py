"""The operations that a dialect's surface names, one handler each."""

"""Dialects over gRPC: channels, sessions as backends, and client tools. `bridge.grpc.server` serves agents."""

"""Dialects over gRPC: channels, sessions as backends, and client tools. `bridge.server.grpc` serves agents."""

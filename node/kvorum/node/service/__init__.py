"""The gRPC services of a node: thin handlers that check, ask the engine, and translate."""

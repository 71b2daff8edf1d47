"""The wire: generated messages, raw frames for payload, and errors as gRPC statuses.

`*_pb2*` are generated from the `.proto` files beside them; run `make proto`, do not edit.
`frames` carries payload without protobuf's copies; `status` is the one table of errors.
"""

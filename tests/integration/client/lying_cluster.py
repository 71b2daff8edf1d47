"""A cluster of lying nodes behind real gRPC servers on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from kvorum.placement import ClusterMap, Member, SlotMap
from kvorum.v1 import cache_pb2, cluster_pb2, namespace_pb2
from kvorum.v1.frames import decode_put_request
from tests.integration.client.lying_node import (
    Blocks,
    Cluster,
    Faults,
    LyingNode,
    Namespaces,
    Payload,
    State,
)


class LyingCluster(Cluster):
    """All nodes, with what tests do to them."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """host:port of every node."""
        return tuple(member.address for member in self.map.members)

    def node(self, zone: str, shard: int = 0) -> LyingNode:
        """Return a node."""
        return self.nodes[f"n-{zone}-{shard}"]

    def calls(self, method: str) -> int:
        """Return the calls of a method, at all nodes."""
        return sum(node.calls[method] for node in self.nodes.values())

    def every(self, change: Callable[[Faults], object]) -> None:
        """Change the faults of every node."""
        for node in self.nodes.values():
            change(node.faults)

    def copy(self, source: LyingNode, *targets: LyingNode) -> None:
        """Give other nodes what one holds, as the pipe would."""
        for target in targets:
            target.blocks.update(source.blocks)


def _unary(handler: Callable[..., Any], request: type[Any]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        handler,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def _handlers(node: LyingNode) -> dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]:
    """Return the methods of every service."""
    blocks, payload, state, namespaces = Blocks(node), Payload(node), State(node), Namespaces(node)
    return {
        "kvorum.v1.CacheService": {
            "Lookup": _unary(blocks.lookup, cache_pb2.LookupRequest),
            "Delete": _unary(blocks.delete, cache_pb2.DeleteRequest),
            "Touch": _unary(blocks.touch, cache_pb2.TouchRequest),
            "Pin": _unary(blocks.pin, cache_pb2.PinRequest),
            "Unpin": _unary(blocks.unpin, cache_pb2.UnpinRequest),
            "Stat": _unary(blocks.stat, cache_pb2.StatRequest),
            "Get": grpc.unary_stream_rpc_method_handler(
                payload.get, request_deserializer=cache_pb2.GetRequest.FromString
            ),
            "Put": grpc.stream_unary_rpc_method_handler(
                payload.put,
                request_deserializer=decode_put_request,
                response_serializer=cache_pb2.PutResponse.SerializeToString,
            ),
        },
        "kvorum.v1.ClusterService": {
            "GetTopology": _unary(state.get_topology, cluster_pb2.GetTopologyRequest),
            "GetNodeStatus": _unary(state.get_node_status, cluster_pb2.GetNodeStatusRequest),
        },
        "kvorum.v1.NamespaceService": {
            "GetNamespace": _unary(namespaces.get_namespace, namespace_pb2.GetNamespaceRequest),
            "CreateNamespace": _unary(
                namespaces.create_namespace, namespace_pb2.CreateNamespaceRequest
            ),
        },
    }


async def _serve(node: LyingNode, address: str, credentials: grpc.ServerCredentials | None) -> int:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    for service, methods in _handlers(node).items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    await server.start()
    node.server = server
    return port


@asynccontextmanager
async def lying_cluster(
    *,
    zones: str = "abc",
    shards: int = 1,
    block_tokens: int = 16,
    credentials: grpc.ServerCredentials | None = None,
) -> AsyncIterator[LyingCluster]:
    """Serve a cluster until the end of the context; nodes are named `n-<zone>-<shard>`."""
    cluster = LyingCluster(block_tokens)
    members = []
    try:
        for zone in zones:
            for shard in range(shards):
                name = f"n-{zone}-{shard}"
                node = LyingNode(cluster, Member(name, zone, shard, "127.0.0.1:1"))
                cluster.nodes[name] = node
                port = await _serve(node, "127.0.0.1:0", credentials)
                node.member = Member(name, zone, shard, f"127.0.0.1:{port}")
                members.append(node.member)
        cluster.map = ClusterMap("lies", 1, tuple(members), SlotMap.even(shards))
        yield cluster
    finally:
        for node in cluster.nodes.values():
            await stop(node)


async def stop(node: LyingNode) -> None:
    """End a node at once."""
    if node.server is not None:
        await node.server.stop(grace=None)
        node.server = None


async def restart(node: LyingNode) -> None:
    """Start a stopped node again on its address, empty and with a later birth number."""
    node.blocks.clear()
    node.incarnation += 1
    await _serve(node, node.member.address, None)

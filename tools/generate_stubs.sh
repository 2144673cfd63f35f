#!/bin/sh
# generate_stubs.sh BIN OUT: protobuf classes, gRPC stubs and their types, from every .proto file.
# Run from the folder root: so the stubs import each other as `dejamq_proto`, and need no patching.
set -eu
bin=$(cd "$1" && pwd)
out=$2
PATH="$bin:$PATH" # protoc looks for its mypy plugins there
exec "$bin/python" -m grpc_tools.protoc -Iproto \
    --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" \
    proto/dejamq_proto/*.proto proto/dejamq_proto/v2/*.proto

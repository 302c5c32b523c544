#!/usr/bin/env bash
# Prints configs/envoy.yaml with the addresses of docker/compose.yaml: it listens to the
# outside of its container, and the server is the service `renga`. Everything else, the
# relative paths included, stays as it is tested without containers.
#
#   docker/envoy_config.sh >envoy.yaml

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

config=$root/configs/envoy.yaml
listener='address: 127.0.0.1, port_value: 8081'
server='address: 127.0.0.1, port_value: 50051'
for address in "$listener" "$server"; do
  [ "$(grep -cF "$address" "$config")" = 1 ] || die "configs/envoy.yaml: not one line with $address"
done
sed -e "s/$listener/address: 0.0.0.0, port_value: 8081/" \
  -e "s/$server/address: renga, port_value: 50051/" "$config"

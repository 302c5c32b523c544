#!/bin/sh
# keep_ptxas.sh NVCC ARGUMENT...: runs the compiler and keeps what ptxas says of each kernel
# in OBJECT.ptxas, away from what people read. Everything else it says is shown.

object=
take=0
for word in "$@"; do
  [ "$take" = 0 ] || object=$word
  take=0
  [ "$word" != -o ] || take=1
done
rc=0
"$@" 2>"$object.ptxas" || rc=$?
grep -v -e '^ptxas info' -e '^    [0-9]* bytes stack frame' "$object.ptxas" >&2
exit "$rc"

#!/bin/sh
# scripts/ccache.sh COMPILER ARGUMENT...: the compiler launcher of the build. Paths count relative to the project, so that a
# clone in another folder finds what this one has compiled.
CCACHE_BASEDIR=$(cd "$(dirname "$0")/.." && pwd) CCACHE_NOHASHDIR=1 exec ccache "$@"

#!/bin/sh
# What makes a host with an RDMA adapter, soft or real, a peer of `cargo xtask interop`
# with `--peer HOST --via DEVICE`.
#
#   kit.sh [PORT]   builds the agent if it is not there, and serves until it is ended
#
# At PORT (7471) is the agent, at the next one wishes: a line that is asked for, what comes of it, and
# `status N`. A wish is `programs` (the stock ones that this host has), `listens TCPPORT` (waits until
# somebody does), or `run PROGRAM WORD…`, of which nothing but letters, digits and `_ . : -` may be.
# Wanted are a C compiler and libibverbs (Debian: gcc libibverbs-dev), and as many of the programs as
# shall be met (ibverbs-utils perftest).
PROGRAMS="ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong ib_send_bw ib_send_lat
ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat"
# No program of a matrix takes as many seconds.
PATIENCE=150

case $0 in */*) folder=${0%/*} ;; *) folder=. ;; esac

wish() {
	read -r line
	case $line in *[!A-Za-z0-9_.:\ -]*) echo "no plain words"; return 2 ;; esac
	set -f
	set -- $line
	case $1 in
	programs)
		for program in $PROGRAMS; do
			command -v "$program" >/dev/null && echo "$program"
		done
		return 0 ;;
	listens)
		port=$(printf %04X "$2") || return 2
		for go in $(seq 300); do
			grep -qs ":$port .* 0A" /proc/net/tcp /proc/net/tcp6 && return 0
			sleep 0.1
		done
		echo "nobody listens at port $2"
		return 1 ;;
	run)
		shift
		for program in $PROGRAMS; do
			[ "$program" = "$1" ] || continue
			timeout $PATIENCE "$@" </dev/null 2>&1
			return $?
		done
		echo "$1 is none of the programs"
		return 2 ;;
	esac
	echo "no such wish"
	return 2
}

case $1 in
wish)
	wish
	echo "status $?"
	exit ;;
*[!0-9]*)
	echo "usage: kit.sh [PORT]" >&2
	exit 2 ;;
esac
port=${1:-7471}
agent=$(command -v roxe-agent) || agent=$folder/roxe-agent
if [ ! -x "$agent" ] || [ "$folder/agent.c" -nt "$agent" ]; then
	agent=$folder/roxe-agent
	${CC:-gcc} -O2 -o "$agent" "$folder/agent.c" -libverbs || {
		echo "kit.sh: no agent: are a compiler and libibverbs there (gcc libibverbs-dev)?" >&2
		exit 3
	}
fi
# A card holds fast to what is registered.
ulimit -l unlimited 2>/dev/null
"$agent" $((port + 1)) sh "$folder/${0##*/}" wish &
wishes=$!
"$agent" "$port" &
agents=$!
trap 'kill $wishes $agents 2>/dev/null; exit 0' INT TERM
# Who cannot have its port ends at once, and has said why.
sleep 1
kill -0 $wishes 2>/dev/null && kill -0 $agents 2>/dev/null || {
	echo "kit.sh: a port of the two, $port and $((port + 1)), cannot be had" >&2
	kill $wishes $agents 2>/dev/null
	exit 1
}
echo "kit.sh: the agent is at port $port, wishes at $((port + 1))"
wait $agents
kill $wishes 2>/dev/null
exit 1

#!/bin/bash
# In the virtual machine (machine.py): makes the network, then runs the command.
#
#   near 10.9.0.1, rxe_near  <--- one cable --->  far 10.9.0.2, rxe_far
#
# Both ends are in one network namespace, for soft-RoCE of this kernel works in no other. Left alone,
# the kernel would keep what goes from one of its addresses to the other to itself; the rules below
# send it over the cable, so that loss (netem) and an interface that goes down are felt by TCP and
# RDMA alike.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
>/run/out/begun  # machine.py waits for it
hostname vm
ip link set lo up
ip link add near type veth peer name far
ip address add 10.9.0.1/24 dev near
ip address add 10.9.0.2/24 dev far
for end in near far; do
  sysctl -q -w net.ipv4.conf.$end.accept_local=1 net.ipv4.conf.$end.rp_filter=0
  ip link set $end up
done
ip rule add preference 100 lookup local
ip rule add preference 10 from 10.9.0.1 to 10.9.0.2 iif lo lookup 1001
ip rule add preference 10 from 10.9.0.2 to 10.9.0.1 iif lo lookup 1002
ip rule delete preference 0
ip route add 10.9.0.2 dev near table 1001 src 10.9.0.1
ip route add 10.9.0.1 dev far table 1002 src 10.9.0.2
for end in near far; do
  rdma link add rxe_$end type rxe netdev $end || echo "no soft-RoCE device on $end"
done
bash /run/out/command >/run/out/output 2>&1
echo $? >/run/out/status
sync

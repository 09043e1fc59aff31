#!/bin/busybox sh
# The first process of the guest in which rdma_rxe runs: modules, addresses, adapter, kit.
# The kernel's command line says: roxe.ip=10.10.0.2/24 roxe.ip6=fd10::2/64 roxe.mtu=4200
# roxe.vlan=10.10.100.2/24
export PATH=/usr/bin:/bin HOME=/ LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /tmp
said() { for word in $(cat /proc/cmdline); do case $word in $1=*) echo "${word#*=}";; esac; done; }
while read -r module; do insmod /lib/modules/$module.ko || echo "roxe-guest: no module $module"; done </lib/modules/order
echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
hostname guest
/usr/bin/ip link set lo up
/usr/bin/ip link set eth0 mtu $(said roxe.mtu) txqueuelen 20000 up
/usr/bin/ip address add $(said roxe.ip) dev eth0
/usr/bin/ip address add $(said roxe.ip6) dev eth0 nodad
# A VLAN of the interface's, whose address is one of the adapter's too.
/usr/bin/ip link add link eth0 name eth0.100 type vlan id 100
/usr/bin/ip address add $(said roxe.vlan) dev eth0.100
/usr/bin/ip link set eth0.100 up
/usr/bin/rdma link add rxe0 type rxe netdev eth0 || echo "roxe-guest: no adapter"
# A script that is posted here runs; what it printed comes back, its exit status behind it.
mkdir -p /www/cgi-bin
cat >/www/cgi-bin/run <<'RUN'
#!/bin/busybox sh
script=/tmp/script.$$; head -c "$CONTENT_LENGTH" >$script
printf 'Content-Type: text/plain\r\n\r\n'
sh $script </dev/null 2>&1; echo "status $?"; rm -f $script
RUN
chmod +x /www/cgi-bin/run
httpd -p 7000 -h /www
roxe-kit &
echo "roxe-guest: ready"
while :; do sleep 1000; done

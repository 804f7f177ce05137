#!/bin/busybox sh
# The first process of the virtual machine (machine.py): loads the modules, mounts the host's files as
# the root, and goes on there with guest.sh.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
while read -r module; do
  $b insmod "/modules/$module" || $b echo "cannot load $module"
done </modules/order
shared=trans=virtio,version=9p2000.L,msize=524288
$b mount -t 9p -o "$shared,ro,cache=loose" hostroot /host || $b poweroff -f
$b mount -o bind /host /root
for folder in proc sys dev; do $b mount -o move /$folder /root/$folder; done
for folder in tmp run; do $b mount -t tmpfs tmpfs /root/$folder; done
$b mkdir -p /root/run/out /root/dev/shm /root/dev/pts
$b mount -t tmpfs tmpfs /root/dev/shm
$b mount -t devpts devpts /root/dev/pts
$b mount -t 9p -o "$shared" out /root/run/out
# Folders that the command needs and that the mounts above have hidden.
while read -r folder; do
  $b mkdir -p "/root$folder" && $b mount -o bind "/host$folder" "/root$folder"
done </root/run/out/folders
$b chroot /root /bin/bash /run/out/guest.sh
$b poweroff -f

#!/bin/sh
# make_root.sh BUNDLE ROOT: the files of the image. Runs in Debian 12 or in a root that has its glibc and busybox.
#
# /opt/gradbus has the bundle, /usr/lib glibc, /usr/bin busybox as sh, chown, wget and others: what init containers,
# probes and somebody who looks around need. The user gradbus is 7400; no file belongs to it but its home.
set -eu
bundle=$1 root=$2
[ -e /bin/busybox ] || { apt-get update -qq && apt-get install -y -qq busybox-static; }

libraries=/usr/lib/x86_64-linux-gnu
mkdir -p "$root/usr/bin" "$root$libraries" "$root/usr/lib64" "$root/etc" "$root/opt/gradbus" "$root/home/gradbus" \
  "$root/run/gradbus" "$root/tmp" "$root/proc" "$root/sys" "$root/dev" "$root/var/lib/gradbus"
for folder in bin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
for library in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 libdl.so.2 librt.so.1 libresolv.so.2 \
  libutil.so.1 libanl.so.1 libnss_files.so.2 libnss_dns.so.2; do
  cp "$libraries/$library" "$root$libraries/$library"
done
ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$root/usr/lib64/ld-linux-x86-64.so.2"
cp /bin/busybox "$root/usr/bin/busybox"
for applet in sh cat chmod chown cp env id ip kill ls mkdir nslookup ping ps rm sleep wget; do
  ln -s busybox "$root/usr/bin/$applet"
done

tar -xzf "$bundle" -C "$root/opt/gradbus"
mv "$root"/opt/gradbus/gradbus-*/* "$root/opt/gradbus"
rmdir "$root"/opt/gradbus/gradbus-*
rm -rf "$root/opt/gradbus/include" "$root/opt/gradbus/bin/gradbus-nccl"
rm -f "$root"/opt/gradbus/lib/*.a
for package in libc6 busybox-static; do
  cp "/usr/share/doc/$package/copyright" "$root/opt/gradbus/licences/$package"
done

echo 'root:x:0:0:root:/:/bin/sh
gradbus:x:7400:7400:Gradbus:/home/gradbus:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:
gradbus:x:7400:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
chown 7400:7400 "$root/home/gradbus" "$root/run/gradbus" "$root/var/lib/gradbus"
chmod 750 "$root/run/gradbus" "$root/var/lib/gradbus"
chmod 1777 "$root/tmp"

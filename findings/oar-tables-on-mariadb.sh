#!/bin/sh
# Debian 12's OAR 2.5.9 and MariaDB 10.11.19: MariaDB refuses the tables that OAR ships for MySQL,
# since a column of `walltime_change` has the reserved name `force`, unquoted. With that one name
# quoted it takes the whole file. (The file of OAR 2.6.1 in Debian 13 has the same line.) Seen, by
# `mariadbd --bootstrap`, which runs the file without a server:
#
#     as shipped: status 1, near 'force ENUM('YES','NO') DEFAULT 'NO' NOT NULL
#     with `force` quoted: status 0
set -u
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder" || exit 77
apt-get -qq download oar-server=2.5.9-1+deb12u1 mariadb-server-core=1:10.11.19-0+deb12u1 \
    liburing2 libnuma1 2>/dev/null || exit 77
for package in *.deb; do
    dpkg-deb --extract "$package" root || exit 77
done
LD_LIBRARY_PATH=$(dirname "$(find "$folder/root" -name 'liburing.so.2')")
export LD_LIBRARY_PATH

make_tables() { # make_tables FILE: the status and what MariaDB says
    rm -rf data && mkdir data
    { printf 'CREATE DATABASE oar;\nUSE oar;\n' && cat "$1"; } |
        root/usr/sbin/mariadbd --no-defaults --bootstrap --user="$(id -un)" \
            --datadir="$folder/data" --lc-messages-dir="$folder/root/usr/share/mysql" >log 2>&1
    echo "status $?$(sed -n "s/^ERROR: 1064 .* use \(near .*\) ,$/, \1/p" log)"
}

shipped=root/usr/lib/oar/database/mysql_structure.sql
sed 's/^force /`force` /' $shipped >quoted.sql
{
    echo "as shipped: $(make_tables $shipped)"
    echo "with \`force\` quoted: $(make_tables quoted.sql)"
} >said
cat said
cat >expected <<'TEXT'
as shipped: status 1, near 'force ENUM('YES','NO') DEFAULT 'NO' NOT NULL
with `force` quoted: status 0
TEXT
cmp -s said expected || exit 1

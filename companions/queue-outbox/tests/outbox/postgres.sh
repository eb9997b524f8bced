# A PostgreSQL in the directory $1, by the programs in $2, that listens at a socket there and, where the directory has a certificate, at the
# port $3 too; until standard input ends, in whatever way its user has ended. It does not run as root, so that root becomes postgres.
set -eu
dir=$1 bin=$2 port=$3
run=
if [ "$(id -u)" = 0 ]; then
  chown -R postgres: "$dir"
  run='setpriv --reuid=postgres --regid=postgres --init-groups'
fi
cd "$dir"
$run "$bin/initdb" -D data -U postgres -A trust -E UTF8 --locale=C --no-sync > initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
$run "$bin/postgres" -D data -k "$dir" -c listen_addresses=127.0.0.1 -c port="$port" -c fsync=off -c max_connections=100 \
  -c ssl=on -c ssl_cert_file="$dir/server.crt" -c ssl_key_file="$dir/server.key" > postgres.log 2>&1 &
server=$!
cat > /dev/null
kill -QUIT $server
wait $server || true
rm -rf "$dir"

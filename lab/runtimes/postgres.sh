# A PostgreSQL whose sessions wait in known ways: `postgres.sh PROGRAMS` runs it, `postgres.sh PROGRAMS ask` says what it says of
# them. It does not run as root, and nobody else's folder is a place for it.
set -e
programs=$1 data=/tmp/runtimes-postgres
client="psql --no-psqlrc --quiet --tuples-only --no-align --host=$data --username=nobody postgres"
if [ "$2" = ask ]; then
    exec $client -c "SELECT 'thread ' || pid || ' ' || CASE wait_event_type
        WHEN 'Lock' THEN 'lock' WHEN 'Timeout' THEN 'sleep' ELSE 'idle' END
        FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND (wait_event_type IN ('Lock', 'Client', 'Activity') OR wait_event = 'PgSleep')"
fi
run="setpriv --reuid=nobody --regid=nogroup --clear-groups"
rm -rf $data
mkdir -m 700 $data
chown nobody:nogroup $data
$run "$programs/initdb" --auth=trust --username=nobody --pgdata=$data/files --no-sync --locale=C >&2
cd $data
$run "$programs/postgres" -D $data/files -k $data -c listen_addresses= >&2 &
echo "pid $!"
until $client -c 'SELECT 1' > /dev/null 2>&1; do sleep 0.2; done
$client -c 'CREATE TABLE lines (i INT)'
$client -c 'BEGIN; LOCK TABLE lines; SELECT pg_sleep(3600)' &
sleep 1
for _ in 1 2 3; do $client -c 'SELECT * FROM lines' & done
# A session that says nothing.
sleep 3600 | $client &
sleep 1
echo ready
wait

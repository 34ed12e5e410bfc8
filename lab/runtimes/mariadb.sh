# A MariaDB whose sessions wait in known ways: `mariadb.sh` runs it, `mariadb.sh ask` says what it says of them.
set -e
data=$PWD/mariadb
client="mariadb --no-defaults --user=root --socket=$data/socket --batch --skip-column-names"
if [ "$1" = ask ]; then
    exec $client -e "SELECT CONCAT('thread ', p.TID, ' ', CASE
        WHEN p.STATE = 'Waiting for table metadata lock' OR t.trx_state = 'LOCK WAIT' THEN 'lock'
        WHEN p.STATE = 'User sleep' THEN 'sleep' ELSE 'idle' END)
        FROM information_schema.PROCESSLIST p
        LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID
        WHERE p.ID <> CONNECTION_ID() AND p.COMMAND IN ('Query', 'Sleep')"
fi
rm -rf "$data"
mariadb-install-db --no-defaults --user=root --datadir="$data" --auth-root-authentication-method=normal >&2
mariadbd --no-defaults --user=root --datadir="$data" --socket="$data/socket" --skip-networking --innodb-lock-wait-timeout=3600 >&2 &
echo "pid $!"
until $client -e 'SELECT 1' > /dev/null 2>&1; do sleep 0.2; done
$client test -e 'CREATE TABLE items (i INT); CREATE TABLE things (i INT PRIMARY KEY, n INT); INSERT INTO things VALUES (1, 0)'
$client test -e 'LOCK TABLES items WRITE; SELECT SLEEP(3600)' &
$client test -e 'BEGIN; UPDATE things SET n = 1; SELECT SLEEP(3600)' &
sleep 1
for _ in 1 2 3; do $client test -e 'SELECT * FROM items' & done
$client test -e 'UPDATE things SET n = 2' &
# A session that says nothing.
sleep 3600 | $client test &
sleep 1
echo ready
wait

# etcd of one member in the folder "etcd", which clients put keys into.
at=http://127.0.0.1:23790
between=http://127.0.0.1:23800
rm -rf etcd
etcd --data-dir etcd --listen-client-urls $at --advertise-client-urls $at --listen-peer-urls $between \
    --initial-advertise-peer-urls $between --initial-cluster default=$between > etcd.log 2>&1 &
echo pid $!
export ETCDCTL_API=3
until etcdctl --endpoints=$at endpoint health > /dev/null 2>&1; do sleep 0.2; done
etcdctl --endpoints=$at check perf > etcd-clients.log 2>&1 &
sleep 1
echo ready
wait

<?php
// PHP that works in two functions.
function alpha($x) {
    for ($i = 0; $i < 700000; $i++) $x = ($x * 3 + 1) & 0xffffff;
    return $x;
}

function beta($x) {
    for ($i = 0; $i < 300000; $i++) $x = ($x * 3 + 1) & 0xffffff;
    return $x;
}

echo "ready\n";
for ($x = 1;;) $x = beta(alpha($x));

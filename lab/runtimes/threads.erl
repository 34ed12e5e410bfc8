%% Processes of Erlang: one works, one waits for nothing. The threads of the virtual machine wait for work.
-module(threads).
-export([main/0, work/1, alpha/2, beta/2]).

alpha(0, X) -> X;
alpha(N, X) -> alpha(N - 1, (X * 3 + 1) band 16#ffffff).

beta(0, X) -> X;
beta(N, X) -> beta(N - 1, (X * 3 + 1) band 16#ffffff).

work(X) -> work(beta(300000, alpha(700000, X))).

main() ->
    spawn(fun() -> work(1) end),
    timer:sleep(1000),
    io:format("ready~n"),
    timer:sleep(infinity).

(* Domains of OCaml 5 whose work is done on fibers (Effect.Deep): each wait is a call of C below two fibers, of which the inner
   one has yielded and was continued, so that its stack hangs below another one than where it began. *)
open Effect
open Effect.Deep

external set_name : string -> unit = "set_name"

type _ Effect.t += Yield : unit Effect.t

(* [body] on a fiber that yields once before. *)
let on_fiber body =
  match_with
    (fun () -> perform Yield; body ())
    ()
    { retc = Fun.id;
      exnc = raise;
      effc = fun (type a) (operation : a Effect.t) ->
        match operation with
        | Yield -> Some (fun (k : (a, _) continuation) -> continue k ())
        | _ -> None }

let domain name body =
  Domain.spawn (fun () ->
    set_name name;
    on_fiber (fun () -> on_fiber (fun () -> while true do body () done)))

let[@inline never] step seed = (seed * 1103515245 + 12345) land 0x3fffffff
let sink = ref 1
let[@inline never] alpha () = for _ = 1 to 7_000_000 do sink := step !sink done
let[@inline never] beta () = for _ = 1 to 3_000_000 do sink := step !sink done

let () =
  let kept = Mutex.create () and free = Mutex.create () in
  let never = Condition.create () in
  let ends = Unix.pipe () in
  Mutex.lock kept;
  let domains = [
    domain "o-sleep" (fun () -> Unix.sleepf 0.05);
    domain "o-lock" (fun () -> Mutex.lock kept);
    domain "o-cond" (fun () -> Mutex.lock free; Condition.wait never free);
    domain "o-pipe" (fun () -> ignore (Unix.read (fst ends) (Bytes.create 1) 0 1));
    domain "o-work" (fun () -> alpha (); beta ()) ]
  in
  Unix.sleepf 0.3;
  print_endline "ready";
  List.iter Domain.join domains

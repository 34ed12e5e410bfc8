/* The name of the thread that calls, which OCaml cannot set. */
#include <caml/mlvalues.h>
#include <sys/prctl.h>

value set_name(value name)
{
    prctl(PR_SET_NAME, String_val(name));
    return Val_unit;
}

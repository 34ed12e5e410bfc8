//! Names whose text was made by `c++filt` (binutils 2.40).

use super::*;

#[track_caller]
fn check(name: &str, expected: &str) {
    let mut out = String::new();
    assert_eq!(write_demangled(name, &mut out), Some(()), "{name}: {out}");
    assert_eq!(out, expected);
}

/// Check functions, their qualifiers, constructors and operators.
#[test]
fn functions() {
    check("_Z1fv", "f()");
    check("_ZNKO1A1fEPKcz", "A::f(char const*, ...) const &&");
    check("_ZN1A1BIiED1Ev", "A::B<int>::~B()");
    check("_ZN1AplERKS_", "A::operator+(A const&)");
    check("_ZN1AdaEPv", "A::operator delete[](void*)");
    check("_Zli3_kmy", "operator\"\" _km(unsigned long long)");
    check(
        "_ZN12_GLOBAL__N_11fB5cxx11Ev",
        "(anonymous namespace)::f[abi:cxx11]()",
    );
    check("_ZN1A1BB5cxx11C1Ei", "A::B[abi:cxx11]::B(int)");
    check("_ZNK1AcvbEv", "A::operator bool() const");
    check("_ZNK1AIiEcvT_IlEEv", "A<int>::operator long<long>() const");
}

/// Check a type made of a template's parameter that a lambda refers to again: there it is the lambda's own.
#[test]
fn parameters_of_lambdas() {
    check(
        "_ZTSNSt6thread11_State_implINS_8_InvokerISt5tupleIJZ17make_named_threadIM11AdminSocketDoFvvEJPS4_EES_St17basic_string_viewIcSt11char_traitsIcEEOT_DpOT0_EUlSD_SG_E_S6_S7_EEEEEE",
        "typeinfo name for std::thread::_State_impl<std::thread::_Invoker<std::tuple<make_named_thread<void (AdminSocket::*)() noexcept, \
         AdminSocket*>(std::basic_string_view<char, std::char_traits<char> >, void (AdminSocket::*&&)() noexcept, \
         AdminSocket*&&)::{lambda(auto:1&&, auto:2&&...)#1}, void (AdminSocket::*)() noexcept, AdminSocket*> > >",
    );
}

/// Check that what an inner function's parameter is made of is the outer function's own where that refers to
/// it again (`c++filt` writes `int&&`), and that the parts of a scope as GCC writes it can be referred to.
#[test]
fn parameters_of_inner_functions() {
    check(
        "_Z1gIcRZ1fIiEvOT_E1wEvS2_",
        "void g<char, f<int>(int&&)::w&>(char&&)",
    );
    check(
        "_Z1fIiEN1eIXsrN1n1cIT_EE1vEiE4typeES3_",
        "e<n::c<int>::v, int>::type f<int>(int)",
    );
}

/// Check that an argument may be an object of a function (`c++filt` puts it in parentheses).
#[test]
fn object_of_a_function() {
    check("_Z1gIXadL_ZZ1fvE1xEEEvv", "void g<&f()::x>()");
}

/// Check the classes of names that the crate `cpp_demangle` gets wrong: constructor templates keep their first
/// parameter, each argument of an expanded pack has its reference, members of qualified types have
/// the qualifier behind them.
#[test]
fn better_than_cpp_demangle() {
    check("_ZN1AC1IiEET_i", "A::A<int>(int, int)");
    check(
        "_ZN1AC1I1BEEjjRKT_b",
        "A::A<B>(unsigned int, unsigned int, B const&, bool)",
    );
    check(
        "_Z1fIJiRlcEEvDpOT_",
        "void f<int, long&, char>(int&&, long&, char&&)",
    );
    check("_Z1fIJEEvDpOT_", "void f<>()");
    check("_Z1fIN1A1BEEvRKNT_1CE", "void f<A::B>(A::B::C const&)");
}

/// Check declarators: pointers to functions, arrays and members.
#[test]
fn declarators() {
    check("_Z1fPFivE", "f(int (*)())");
    check("_Z1fRA3_KcS1_", "f(char const (&) [3], char const (&) [3])");
    check("_Z1fM1AKFivRE", "f(int (A::*)() const &)");
    check("_Z1fM1Ai", "f(int A::*)");
    check("_Z1fIOFvvEEvOT_", "void f<void (&&)()>(void (&&)())");
    check(
        "_Z1fDv4_fDhDn",
        "f(float __vector(4), half, decltype(nullptr))",
    );
}

/// Check lambdas, local names, literals and expressions.
#[test]
fn scopes_and_expressions() {
    check(
        "_ZZN1A1fEvENKUlvE_clEv",
        "A::f()::{lambda()#1}::operator()() const",
    );
    check(
        "_ZZ1fIiEvT_ENKUlT_E0_clIcEEDaS1_",
        "auto f<int>(int)::{lambda(auto:1)#2}::operator()<char>(char) const",
    );
    check("_ZZ4mainE1x_0", "main::x");
    check("_ZGVZ4mainE1x", "guard variable for main::x");
    check(
        "_ZN1A1fI1BLm4ELj2ELin3ELb1EEEvv",
        "void A::f<B, 4ul, 2u, -3, true>()",
    );
    check("_Z1fIiEDTcl1gfp_EET_", "decltype (g({parm#1})) f<int>(int)");
    check("_Z1fILN1A1EE2EEvv", "void f<(A::E)2>()");
    check(
        "_Z1fIiEvNSt9enable_ifIXsr1AIT_EE1vEvE4typeE",
        "void f<int>(std::enable_if<A<int>::v, void>::type)",
    );
    check("_ZThn16_N1A1fEi", "non-virtual thunk to A::f(int)");
    check("_ZTCN1A1BE16_1C", "construction vtable for C-in-A::B");
}

/// Check that what is no name of this kind is refused, and that hostile ones end.
#[test]
fn refused() {
    let refused = |name: &str| {
        let mut out = String::new();
        assert_eq!(write_demangled(name, &mut out), None, "{name}: {out}");
    };
    for name in [
        "", "_Z", "f", "_Z1", "_Z9f", "_Z1fS_", "_Z1fT_", "_Z1fvE", "_ZN1A", "_Zebra",
    ] {
        refused(name);
    }
    refused(&format!("_Z1f{}i", "P".repeat(60_000)));
    refused(&format!("_ZN{}E", "1a".repeat(30_000)));
    // Each parameter wraps the one before: deep parts without deep nesting of the name.
    let mut wrapped = "_Z1fP1A".to_owned();
    for i in 0..35 {
        let digit = char::from_digit(i, 36).unwrap_or('0').to_ascii_uppercase();
        wrapped.push_str(&format!("PS{digit}_"));
    }
    let mut out = String::new();
    let _ = write_demangled(&wrapped, &mut out);
    // Lists of lists that double, and stay empty.
    let mut empty = "_Z1fIJEJT_T_E".to_owned();
    for i in 0..30 {
        empty.push_str(&format!("JT{i}_T{i}_E"));
    }
    let _ = write_demangled(&(empty + "Evv"), &mut out);
}

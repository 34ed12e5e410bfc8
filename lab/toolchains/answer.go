// The stack of answer.c, in Go. What is inlined is the compiler's choice.
package main

import (
	"fmt"
	"syscall"
)

var sink uint64

//go:noinline
func leaf_spin() {
	for i := 0; i < 20000000; i++ {
		sink++
	}
}

//go:noinline
func leaf_wait() {
	wait := syscall.Timespec{Nsec: 20000000}
	syscall.Nanosleep(&wait, nil)
	sink++
}

func middle_step(n uint64) {
	if n%2 == 0 {
		leaf_spin()
	} else {
		leaf_wait()
	}
}

//go:noinline
func outer_step(n uint64) {
	middle_step(n)
	sink++
}

func main() {
	fmt.Println("ready")
	for n := uint64(0); ; n++ {
		outer_step(n)
	}
}

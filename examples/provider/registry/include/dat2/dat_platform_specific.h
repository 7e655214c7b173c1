// The types and macros that depend on the platform, for Linux (uDAPL 2.0 Appendix A.5).
// SPDX-License-Identifier: BSL-1.0
#ifndef _DAT_PLATFORM_SPECIFIC_H_
#define _DAT_PLATFORM_SPECIFIC_H_

#ifndef __STDC_CONSTANT_MACROS
#define __STDC_CONSTANT_MACROS // UINT64_C in old C++
#endif

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef uint32_t DAT_UINT32;
typedef uint64_t DAT_UINT64;
typedef unsigned long long DAT_UVERYLONG; // the longest unsigned integer of the compiler
typedef void* DAT_PVOID;
typedef int DAT_COUNT;
typedef DAT_UINT64 DAT_PADDR;
typedef int DAT_FD;

// A communicator: the three arguments of socket().
typedef struct dat_comm {
  int domain;
  int type;
  int protocol;
} DAT_COMM;

typedef struct sockaddr DAT_SOCK_ADDR;
typedef struct sockaddr_in6 DAT_SOCK_ADDR6;
#define DAT_AF_INET AF_INET
#define DAT_AF_INET6 AF_INET6

// The alignment of buffers with which a provider is fastest, in bytes.
#ifndef DAT_OPTIMAL_ALIGNMENT
#define DAT_OPTIMAL_ALIGNMENT 256
#endif

#define DAT_IA_HANDLE_TO_UL(a) (unsigned long)(a)
#define DAT_UL_TO_IA_HANDLE(a) (DAT_IA_HANDLE)(a)

// The calling convention and the linkage of the functions: nothing special on Linux.
#define DAT_API
#define DAT_EXPORT extern

// Marks of parameters. These headers do not use them; programs do.
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef INOUT
#define INOUT
#endif

#endif

// The C interface of uDAPL, as OFA's headers declare it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <netinet/in.h> // dat_ib_extensions.h needs sockaddr_in6

#include <dat2/udat.h>

#include <dat2/dat_ib_extensions.h>
#include <dat2/dat_registry.h>

// The version of the C interface; dat has macros of these names for its own.
#undef DAT_VERSION_MAJOR
#undef DAT_VERSION_MINOR

// The version of the interface, and what a consumer may set before it includes udat.h (uDAPL 2.0 Appendix A.2).
// SPDX-License-Identifier: BSL-1.0
#ifndef _UDAT_CONFIG_H_
#define _UDAT_CONFIG_H_

#define DAT_VERSION_MAJOR 2
#define DAT_VERSION_MINOR 0

// The thread safety that dat_ia_open requests. dat.conf files in use list non-thread-safe providers, and so does the
// default of the headers that programs were compiled with until now.
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

// The extensions are part of the binary interface: without them, DAT_PROVIDER and DAT_EVENT would be shorter.
#ifndef DAT_EXTENSIONS
#define DAT_EXTENSIONS 1
#endif

#endif

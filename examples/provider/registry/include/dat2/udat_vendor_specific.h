// The place of vendors' additions to udat.h (uDAPL 2.0 Appendix A.7): there are none.
// SPDX-License-Identifier: BSL-1.0
#ifndef _UDAT_VENDOR_SPECIFIC_H_
#define _UDAT_VENDOR_SPECIFIC_H_
#include <dat2/dat_vendor_specific.h>
#endif

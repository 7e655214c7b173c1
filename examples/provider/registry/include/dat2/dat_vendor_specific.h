// The place of vendors' additions to dat.h (uDAPL 2.0 Appendix A.6): there are none.
// SPDX-License-Identifier: BSL-1.0
#ifndef _DAT_VENDOR_SPECIFIC_H_
#define _DAT_VENDOR_SPECIFIC_H_
#endif

// <dat/address.hpp>: a constant that is no connection qualifier.
// SPDX-License-Identifier: BSL-1.0
#include <dat/address.hpp>

void listen_on(dat::conn_qual);

//! case: connection qualifier 0
//! error: a_connection_qualifier_is_a_port_from_1_to_65535
#ifdef DAT_EXPECT_FAIL
void zero() { listen_on(0); }
#else
void one() { listen_on(1); }
#endif

//! case: a connection qualifier beyond 65535 that is no service id
//! error: a_connection_qualifier_is_a_port_from_1_to_65535
#ifdef DAT_EXPECT_FAIL
void beyond() { listen_on(0x10000 + 5000); }
#else
void service_id() { listen_on(0x01060000 + 5000); }
#endif

//! case: a negative connection qualifier
//! error: a_connection_qualifier_is_a_port_from_1_to_65535
#ifdef DAT_EXPECT_FAIL
void negative() { listen_on(-7471); }
#else
void positive() { listen_on(7471); }
#endif

//! case: a connection qualifier known at run time only, unchecked
//! error(gcc): is not a constant expression
//! error(clang): is not a constant expression
#ifdef DAT_EXPECT_FAIL
void unchecked(int port) { listen_on(port); }
#else
void checked(unsigned port) {
  if (auto qualifier = dat::conn_qual::make(port)) listen_on(qualifier.value());
}
#endif

// Everything of dat.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/async.hpp>
#include <dat/attributes.hpp>
#include <dat/batch.hpp>
#include <dat/cno.hpp>
#include <dat/communicator.hpp>
#include <dat/cookie.hpp>
#include <dat/cr.hpp>
#include <dat/dto.hpp>
#include <dat/ep.hpp>
#include <dat/ep_attributes.hpp>
#include <dat/error.hpp>
#include <dat/evd.hpp>
#include <dat/evd_id.hpp>
#include <dat/event.hpp>
#include <dat/expected.hpp>
#include <dat/fwd.hpp>
#include <dat/ia.hpp>
#include <dat/ib.hpp>
#include <dat/iov.hpp>
#include <dat/lmr.hpp>
#include <dat/object.hpp>
#include <dat/port.hpp>
#include <dat/privileges.hpp>
#include <dat/psp.hpp>
#include <dat/pz.hpp>
#include <dat/segment.hpp>
#include <dat/service_id.hpp>
#include <dat/srq_attributes.hpp>
#include <dat/status.hpp>
#include <dat/streams.hpp>
#include <dat/strerror.hpp>
#include <dat/timeout.hpp>
#include <dat/version.hpp>

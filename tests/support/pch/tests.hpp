// Precompiled for the test programs: the third-party headers that nearly every test needs. (No #pragma once: this is
// compiled as a main file, where the pragma draws a warning.)
// SPDX-License-Identifier: BSL-1.0
#include <support/catch.hpp>

#include <boost/outcome/basic_result.hpp>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

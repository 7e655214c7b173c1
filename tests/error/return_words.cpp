// Return words: class, type and subtype, their values, names and texts.
// SPDX-License-Identifier: BSL-1.0
#include <dat/error.hpp>
#include <dat/strerror.hpp>

#include <support/catch.hpp>
#include <support/worker.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <set>
#include <utility>

using dat::error;
using dat::object_kind;
using dat::return_class;
using dat::return_subtype;
using dat::return_type;

namespace {

constexpr std::array<std::pair<return_type, std::uint32_t>, 25> all_types{{
    {return_type::success, 0x00000000},
    {return_type::abort, 0x00010000},
    {return_type::conn_qual_in_use, 0x00020000},
    {return_type::insufficient_resources, 0x00030000},
    {return_type::internal_error, 0x00040000},
    {return_type::invalid_handle, 0x00050000},
    {return_type::invalid_parameter, 0x00060000},
    {return_type::invalid_state, 0x00070000},
    {return_type::length_error, 0x00080000},
    {return_type::model_not_supported, 0x00090000},
    {return_type::provider_not_found, 0x000A0000},
    {return_type::privileges_violation, 0x000B0000},
    {return_type::protection_violation, 0x000C0000},
    {return_type::queue_empty, 0x000D0000},
    {return_type::queue_full, 0x000E0000},
    {return_type::timeout_expired, 0x000F0000},
    {return_type::provider_already_registered, 0x00100000},
    {return_type::provider_in_use, 0x00110000},
    {return_type::invalid_address, 0x00120000},
    {return_type::interrupted_call, 0x00130000},
    {return_type::conn_qual_unavailable, 0x00140000},
    {return_type::port_in_use, 0x00160000},
    {return_type::comm_not_supported, 0x00170000},
    {return_type::extension_base, 0x10000000},
    {return_type::not_implemented, 0x3FFF0000},
}};

// In header order, which numbers them 0..102.
constexpr std::array all_subtypes{
    return_subtype::none,
    return_subtype::interrupted,
    return_subtype::resource_memory,
    return_subtype::resource_device,
    return_subtype::resource_tep,
    return_subtype::resource_tevd,
    return_subtype::resource_protection_domain,
    return_subtype::resource_memory_region,
    return_subtype::resource_error_handler,
    return_subtype::resource_credits,
    return_subtype::resource_srq,
    return_subtype::handle_ia,
    return_subtype::handle_ep,
    return_subtype::handle_lmr,
    return_subtype::handle_rmr,
    return_subtype::handle_pz,
    return_subtype::handle_psp,
    return_subtype::handle_rsp,
    return_subtype::handle_cr,
    return_subtype::handle_cno,
    return_subtype::handle_evd_cr,
    return_subtype::handle_evd_request,
    return_subtype::handle_evd_recv,
    return_subtype::handle_evd_conn,
    return_subtype::handle_evd_async,
    return_subtype::handle_srq,
    return_subtype::handle_csp,
    return_subtype::handle1,
    return_subtype::handle2,
    return_subtype::handle3,
    return_subtype::handle4,
    return_subtype::handle5,
    return_subtype::handle6,
    return_subtype::handle7,
    return_subtype::handle8,
    return_subtype::handle9,
    return_subtype::handle10,
    return_subtype::arg1,
    return_subtype::arg2,
    return_subtype::arg3,
    return_subtype::arg4,
    return_subtype::arg5,
    return_subtype::arg6,
    return_subtype::arg7,
    return_subtype::arg8,
    return_subtype::arg9,
    return_subtype::arg10,
    return_subtype::ep_unconnected,
    return_subtype::ep_actconnpending,
    return_subtype::ep_passconnpending,
    return_subtype::ep_tentconnpending,
    return_subtype::ep_connected,
    return_subtype::ep_disconnected,
    return_subtype::ep_reserved,
    return_subtype::ep_complpending,
    return_subtype::ep_discpending,
    return_subtype::ep_providercontrol,
    return_subtype::ep_notready,
    return_subtype::ep_recv_watermark,
    return_subtype::ep_pz,
    return_subtype::ep_evd_request,
    return_subtype::ep_evd_recv,
    return_subtype::ep_evd_connect,
    return_subtype::ep_unconfigured,
    return_subtype::ep_unconfreserved,
    return_subtype::ep_unconfpassive,
    return_subtype::ep_unconftentative,
    return_subtype::cno_in_use,
    return_subtype::cno_dead,
    return_subtype::evd_open,
    return_subtype::evd_enabled,
    return_subtype::evd_disabled,
    return_subtype::evd_waitable,
    return_subtype::evd_unwaitable,
    return_subtype::evd_in_use,
    return_subtype::evd_config_notify,
    return_subtype::evd_config_solicited,
    return_subtype::evd_config_threshold,
    return_subtype::evd_waiter,
    return_subtype::evd_async,
    return_subtype::ia_in_use,
    return_subtype::lmr_in_use,
    return_subtype::lmr_free,
    return_subtype::pz_in_use,
    return_subtype::pz_free,
    return_subtype::srq_operational,
    return_subtype::srq_error,
    return_subtype::srq_in_use,
    return_subtype::privileges_read,
    return_subtype::privileges_write,
    return_subtype::privileges_rdma_read,
    return_subtype::privileges_rdma_write,
    return_subtype::protection_read,
    return_subtype::protection_write,
    return_subtype::protection_rdma_read,
    return_subtype::protection_rdma_write,
    return_subtype::address_unsupported,
    return_subtype::address_unreachable,
    return_subtype::address_malformed,
    return_subtype::name_not_registered,
    return_subtype::major_not_found,
    return_subtype::minor_not_found,
    return_subtype::thread_safety_not_found,
};

constexpr bool types_have_their_values() {
  for (const auto& [type, value] : all_types)
    if (static_cast<std::uint32_t>(type) != value) return false;
  return true;
}

constexpr bool subtypes_count_from_zero() {
  for (std::size_t i = 0; i < all_subtypes.size(); ++i)
    if (static_cast<std::size_t>(all_subtypes[i]) != i) return false;
  return true;
}

constexpr bool words_round_trip() {
  for (const auto& [type, value] : all_types)
    for (const auto subtype : all_subtypes) {
      const error e(type, subtype);
      if (e.value() != (0x80000000 | value | static_cast<std::uint32_t>(subtype))) return false;
      if (dat::class_of(e.value()) != return_class::error || dat::type_of(e.value()) != type ||
          dat::subtype_of(e.value()) != subtype)
        return false;
    }
  return true;
}

/// The types that have subtypes, and the first and last of them. Every other type has none.
constexpr struct {
  return_type type;
  return_subtype first, last;
} subtypes_of[] = {
    {return_type::abort, return_subtype::interrupted, return_subtype::interrupted},
    {return_type::insufficient_resources, return_subtype::resource_memory, return_subtype::resource_srq},
    {return_type::invalid_handle, return_subtype::handle_ia, return_subtype::handle10},
    {return_type::invalid_parameter, return_subtype::arg1, return_subtype::arg10},
    {return_type::invalid_state, return_subtype::ep_unconnected, return_subtype::srq_in_use},
    {return_type::privileges_violation, return_subtype::privileges_read, return_subtype::privileges_rdma_write},
    {return_type::protection_violation, return_subtype::protection_read, return_subtype::protection_rdma_write},
    {return_type::invalid_address, return_subtype::address_unsupported, return_subtype::address_malformed},
    {return_type::provider_not_found, return_subtype::name_not_registered, return_subtype::thread_safety_not_found},
};

/// The texts of these subtypes.
constexpr std::pair<return_subtype, std::string_view> ends_of_types[] = {
    {return_subtype::interrupted, "interrupted"},
    {return_subtype::resource_memory, "host memory"},
    {return_subtype::resource_srq, "shared receive queues or their entries"},
    {return_subtype::handle_ia, "ia handle"},
    {return_subtype::handle_csp, "csp handle"},
    {return_subtype::handle1, "handle argument 1"},
    {return_subtype::handle10, "handle argument 10"},
    {return_subtype::arg1, "argument 1"},
    {return_subtype::arg10, "argument 10"},
    {return_subtype::ep_unconnected, "the endpoint is not connected"},
    {return_subtype::ep_disconnected, "the endpoint is disconnected"},
    {return_subtype::cno_in_use, "the cno is in use"},
    {return_subtype::evd_open, "the evd is open"},
    {return_subtype::evd_async, "the evd belongs to asynchronous errors"},
    {return_subtype::srq_in_use, "the shared receive queue is in use"},
    {return_subtype::privileges_read, "local read access"},
    {return_subtype::privileges_rdma_write, "remote write access"},
    {return_subtype::protection_read, "memory for local reading"},
    {return_subtype::protection_rdma_write, "memory for remote writing"},
    {return_subtype::address_unsupported, "no endpoint can have such an address"},
    {return_subtype::address_malformed, "it is no valid address"},
    {return_subtype::name_not_registered, "no adapter of this name"},
    {return_subtype::thread_safety_not_found, "no adapter of this thread safety"},
};

constexpr bool belongs(return_type type, return_subtype subtype) {
  for (const auto& of : subtypes_of)
    if (of.type == type) return of.first <= subtype && subtype <= of.last;
  return false;
}

} // namespace

TEST_CASE("a return word is class, type and subtype, and every pair survives the round trip",
          "[ERR-001][ERR-002][ERR-003][ERR-005]") {
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_class::success) == 0x00000000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_class::warning) == 0x40000000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_class::error) == 0x80000000);
  STATIC_REQUIRE(dat::return_type_mask == 0x3fff0000);
  STATIC_REQUIRE(dat::return_subtype_mask == 0x0000FFFF);
  STATIC_REQUIRE(words_round_trip());
  STATIC_REQUIRE(dat::is_warning(0x40000002));
  STATIC_REQUIRE_FALSE(dat::is_warning(0x80030002));
  STATIC_REQUIRE_FALSE(dat::is_warning(0));
  STATIC_REQUIRE(dat::is_warning(0xC0000000)); // the bit alone counts, as in the macro
  STATIC_REQUIRE(dat::class_of(0xC0000000) != return_class::error);
}

TEST_CASE("a warning is of type success and no error", "[ERR-004]") {
  constexpr std::uint32_t word = 0x40000002;
  STATIC_REQUIRE(dat::class_of(word) == return_class::warning);
  STATIC_REQUIRE(dat::type_of(word) == return_type::success);
  STATIC_REQUIRE(dat::subtype_of(word) == return_subtype::resource_memory);
  STATIC_REQUIRE(dat::class_of(0x80030002) != return_class::warning);
  STATIC_REQUIRE(dat::class_of(0) == return_class::success);
  STATIC_REQUIRE(dat::type_of(0) == return_type::success);
  CHECK(dat::strerror(word).value().major == dat::strerror(0).value().major);
}

TEST_CASE("all 25 types and 103 subtypes have the values of the C header",
          "[ERR-006][ERR-007][ERR-008][ERR-009][IBX-009][DTO-067][DTO-068]") {
  STATIC_REQUIRE(types_have_their_values());
  CHECK_FALSE(dat::valid_pair(static_cast<return_type>(0x00150000), return_subtype::none)); // no type has this number
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_type::privileges_violation) == 0x000B0000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_type::protection_violation) == 0x000C0000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_type::port_in_use) == 0x00160000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_type::comm_not_supported) == 0x00170000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_type::not_implemented) == 0x3FFF0000);
  SHOWS("ERR-023", "ERR-029", "ERR-030");
  STATIC_REQUIRE(all_subtypes.size() == 103);
  STATIC_REQUIRE(subtypes_count_from_zero());
  STATIC_REQUIRE(dat::name_not_found == return_type::provider_not_found);
  STATIC_REQUIRE(static_cast<std::uint32_t>(dat::ib_error) == 0x10000000);
  STATIC_REQUIRE(static_cast<std::uint32_t>(return_type::extension_base) == 0x10000000);
  for (const std::uint32_t reserved : {0x10010000u, 0x20000000u, 0x3FFE0000u}) // of other extensions
    CHECK_FALSE(dat::valid_pair(static_cast<return_type>(reserved), return_subtype::none));
}

TEST_CASE("a subtype is valid with the types that the specification gives it to, and with no other",
          "[ERR-041]"
          "[ERR-036][ERR-031][ERR-032][ERR-033][ERR-034][ERR-037]") {
  int total = 0;
  for (const auto& [type, value] : all_types) {
    for (const auto subtype : all_subtypes) {
      if (subtype == return_subtype::none) continue;
      CAPTURE(to_string(type), to_string(subtype));
      const bool valid = dat::valid_pair(type, subtype);
      if (valid != belongs(type, subtype)) FAIL("another type's subtype");
      total += static_cast<int>(valid);
    }
    CHECK(dat::valid_pair(type, return_subtype::none));
    CHECK_FALSE(dat::valid_pair(type, static_cast<return_subtype>(103)));
  }
  CHECK(total == 102); // every subtype except "none" belongs to exactly one type
  STATIC_REQUIRE(dat::valid_pair(return_type::invalid_state, return_subtype::ep_connected));
  STATIC_REQUIRE_FALSE(dat::valid_pair(return_type::queue_full, return_subtype::ep_connected));
  STATIC_REQUIRE_FALSE(dat::valid_pair(static_cast<return_type>(0x00150000), return_subtype::none));
}

TEST_CASE("every type and subtype has a name and a text of its own", "[ERR-043][ERR-052]") {
  std::set<std::string_view> names;
  std::set<std::string_view> majors;
  for (const auto& [type, value] : all_types) {
    names.insert(to_string(type));
    majors.insert(error(type).major());
    CHECK_FALSE(error(type).major().empty());
  }
  CHECK(names.size() == all_types.size());
  CHECK(majors.size() == all_types.size());
  names.clear();
  std::set<std::string_view> minors;
  for (const auto subtype : all_subtypes) {
    names.insert(to_string(subtype));
    minors.insert(error(return_type::invalid_state, subtype).minor());
    CHECK_FALSE(error(return_type::invalid_state, subtype).minor().empty());
  }
  CHECK(names.size() == all_subtypes.size());
  CHECK(minors.size() == all_subtypes.size());
  // Checks the first and the last subtype of each type, so that no text can belong to a neighbour.
  for (const auto& [subtype, text] : ends_of_types) CHECK(error(return_type::success, subtype).minor() == text);

  STATIC_REQUIRE(to_string(return_type::queue_full) == "queue_full");
  STATIC_REQUIRE(to_string(return_subtype::ep_connected) == "ep_connected");
  STATIC_REQUIRE(to_string(static_cast<return_type>(0x00150000)) == "unknown return_type");
  STATIC_REQUIRE(to_string(static_cast<return_subtype>(103)) == "unknown return_subtype");
  STATIC_REQUIRE(to_string(static_cast<return_class>(0xC0000000)) == "unknown return_class");
}

TEST_CASE("every kind of object has a name") {
  std::set<std::string_view> names;
  for (std::uint8_t kind = 0; kind <= static_cast<std::uint8_t>(object_kind::ep); ++kind)
    names.insert(to_string(static_cast<object_kind>(kind)));
  CHECK(names.size() == 13);
  CHECK(names.count("unknown object_kind") == 0);
  CHECK(to_string(static_cast<object_kind>(13)) == "unknown object_kind");
}

TEST_CASE("strerror knows every defined word, success and warnings included", "[ERR-043][ERR-045][ERR-052]") {
  std::size_t described = 0;
  std::size_t of_errors = 0;
  for (const auto& [type, value] : all_types)
    for (const auto subtype : all_subtypes) {
      const auto text = dat::strerror(value | static_cast<std::uint32_t>(subtype));
      if (text && !text.value().major.empty() && !text.value().minor.empty()) ++described;
      of_errors += dat::strerror(error(type, subtype).value()).has_value() ? 1u : 0u; // the same, of class error
    }
  CHECK(described == all_types.size() * all_subtypes.size());
  CHECK(of_errors == described);
  CHECK(dat::strerror(error(dat::ib_error).value()).value().major == "an InfiniBand extension failed");
  REQUIRE(dat::strerror(0).has_value());
  CHECK(dat::strerror(0).value().major == "the operation succeeded");
  CHECK_FALSE(dat::strerror(0).value().minor.empty());
  CHECK(dat::strerror(0x40000002).has_value());
  CHECK(dat::strerror(error(return_type::queue_empty).value()).value().major == "the queue is empty");
}

TEST_CASE("strerror refuses words that the specification does not define", "[ERR-002][ERR-044]") {
  const auto word = GENERATE(0xC0000000U, 0x00150000U, 0x00180000U, 0x00060067U, 0x0006FFFFU, 0x10010000U);
  const auto text = dat::strerror(word);
  CAPTURE(word);
  REQUIRE_FALSE(text.has_value());
  CHECK(text.error() == error(return_type::invalid_parameter, return_subtype::arg1));
}

namespace {

std::size_t described_in_handler = 0;

} // namespace

TEST_CASE("strerror may be called in a signal handler", "[ERR-048]") {
  STATIC_REQUIRE(noexcept(dat::strerror(0)));
  STATIC_REQUIRE(dat::strerror(0x80060025).assume_value().minor == "argument 1"); // the call works at compile time
  const auto previous =
      std::signal(SIGUSR1, [](int) { described_in_handler = dat::strerror(0x00070033).value().minor.size(); });
  REQUIRE(previous != SIG_ERR);
  std::atomic<bool> over = false;
  support::worker other([&](support::worker& w) { // calls strerror all the time
    do w.check(dat::strerror(0x80060025).has_value());
    while (!over);
  });
  std::raise(SIGUSR1);
  std::signal(SIGUSR1, previous);
  over = true;
  other.join();
  CHECK(described_in_handler == std::strlen("the endpoint is connected"));
}

// Return words, dat::error and its texts, the error category, errnos.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/text/remedy.hpp>
#include <dat/error.hpp>
#include <dat/strerror.hpp>

#include <dat/detail/text/errno.hpp>

#include <support/catch.hpp>
#include <support/worker.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <set>
#include <string>
#include <sys/resource.h>
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
}

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

TEST_CASE("a quoted text takes the place of the numbers of a call, and they take its place") {
  constexpr error plain = error(return_type::invalid_parameter).at("f", object_kind::ia, 7).hint("Do this.");
  constexpr error quoting = plain.quote("12x");
  STATIC_REQUIRE(quoting.object_id() == 0);
  STATIC_REQUIRE(quoting.sys_errno() == 0);
  STATIC_REQUIRE(quoting.index() == 0);
  STATIC_REQUIRE(quoting.verb().empty());
  STATIC_REQUIRE(quoting == plain);
  CHECK(quoting.quoted() == "12x");
  CHECK(quoting.at("g", object_kind::ep, 9).quoted() == "12x");
  CHECK(quoting.at("g").message().starts_with("g failed for \"12x\": "));
  CHECK(error(return_type::invalid_parameter).quote("12x").message().starts_with("for \"12x\": "));
  CHECK(error(return_type::invalid_parameter).quote(" ~\x1f\x7f").message().starts_with("for \" ~??\": "));
  CHECK(quoting.hint("Do that.").quoted() == "12x");
  CHECK(quoting.message().ends_with(" Do this."));

  constexpr error again = quoting.from("open", ENOENT);
  STATIC_REQUIRE(again.quoted().empty());
  STATIC_REQUIRE(again.verb() == "open");
  STATIC_REQUIRE(again.object_id() == 0);
  STATIC_REQUIRE(quoting.index(3).quoted().empty());
  STATIC_REQUIRE(quoting.index(3).index() == 3);
  CHECK(plain.quoted().empty());
  CHECK(plain.message().find('"') == std::string::npos);
}

TEST_CASE("the error for an evd without room gives the number of completions, if it is known") {
  constexpr error no_room(return_type::insufficient_resources, dat::return_subtype::resource_tevd);
  CHECK(no_room.message().find("room for") == std::string::npos);
  CHECK(no_room.index(1).message().find(", where room for 1 completions is needed") != std::string::npos);
}

TEST_CASE("a quoted text is cut where the room ends, and the message shows that") {
  const std::string most(error::quote_capacity, 'x');
  const error whole = error(return_type::invalid_parameter).at("f").quote(most);
  CHECK(whole.quoted() == most);
  CHECK(whole.message().starts_with("f failed for \"" + most + "\": "));
  const error shorter = error(return_type::invalid_parameter).at("f").quote(most.substr(1));
  CHECK(shorter.quoted() == most.substr(1));
  const error cut = error(return_type::invalid_parameter).at("f").quote(most + 'y');
  CHECK(cut.quoted() == most);
  CHECK(cut.message().starts_with("f failed for \"" + most + "...\": "));
}

TEST_CASE("an error is small and trivial, and keeps its values") {
  STATIC_REQUIRE(sizeof(error) <= 48);
  STATIC_REQUIRE(std::is_trivially_copyable_v<error>);
  STATIC_REQUIRE(std::is_nothrow_default_constructible_v<error>);
  constexpr error plain(return_type::invalid_state, return_subtype::ep_connected);
  constexpr error e = plain.at("ep.post(send)", object_kind::ep, 17).from("ibv_post_send", EINVAL).index(3);
  STATIC_REQUIRE(e.type() == return_type::invalid_state);
  STATIC_REQUIRE(e.subtype() == return_subtype::ep_connected);
  STATIC_REQUIRE(e.call() == "ep.post(send)");
  STATIC_REQUIRE(e.object() == object_kind::ep);
  STATIC_REQUIRE(e.object_id() == 17);
  STATIC_REQUIRE(e.verb() == "ibv_post_send");
  STATIC_REQUIRE(e.sys_errno() == EINVAL);
  STATIC_REQUIRE(e.index() == 3);
  STATIC_REQUIRE(e.hint().empty());
  STATIC_REQUIRE(e.hint("Do this.").hint() == "Do this.");
  STATIC_REQUIRE(plain.call().empty());
  STATIC_REQUIRE(plain.verb().empty());
  STATIC_REQUIRE(plain.sys_errno() == 0);
  STATIC_REQUIRE(plain.object() == object_kind::none);
}

TEST_CASE("errors are equal when type and subtype are") {
  constexpr error a(return_type::invalid_handle, return_subtype::handle_ep);
  STATIC_REQUIRE(a == a.at("ep.connect").from("rdma_connect", EIO));
  STATIC_REQUIRE(a != error(return_type::invalid_handle, return_subtype::handle_lmr));
  STATIC_REQUIRE(a != error(return_type::invalid_handle));
}

TEST_CASE("a message names the call, the object, the failure, the system call, the errno by name and the remedy") {
  const error e = error(return_type::insufficient_resources, return_subtype::resource_memory_region)
                      .at("pz.register_memory", object_kind::pz, 3)
                      .from("ibv_reg_mr", ENOMEM);
  CHECK_THAT(e.message(), support::starts_with_text("pz.register_memory on pz 3 failed: a resource limit was reached: "
                                                    "memory that may be registered: ibv_reg_mr gave ENOMEM (Cannot "
                                                    "allocate memory). Registered memory is locked"));

  CHECK(error(return_type::queue_empty).message() == "the queue is empty.");
  CHECK(error(return_type::internal_error).at("ia.open").from("ibv_query_device", 0).message() ==
        "ia.open failed: internal error: ibv_query_device.");
  CHECK(error(return_type::internal_error).from(nullptr, ERANGE).message() ==
        "internal error: ERANGE (Numerical result out of range).");
  CHECK(error(return_type::internal_error).from("ibv_query_device", 99999).message() ==
        "internal error: ibv_query_device gave errno 99999.");
  CHECK(error(return_type::model_not_supported).from("rdma_listen", 524).message() ==
        "not supported by this adapter: rdma_listen gave ENOTSUPP (Operation is not supported by the kernel).");
  CHECK(error(return_type::internal_error).from("rdma_listen", 525).message() ==
        "internal error: rdma_listen gave errno 525.");
  CHECK(error(return_type::internal_error).at("evd.wait", object_kind::evd).message() ==
        "evd.wait on evd failed: internal error.");
  CHECK(error(return_type::internal_error).at("ep.post").index(1).message() ==
        "ep.post failed: internal error after 1 operation was taken.");
  CHECK(error(return_type::internal_error).at("ep.post").index(2).message() ==
        "ep.post failed: internal error after 2 operations were taken.");
  CHECK(error(return_type::queue_full).hint("Wait a little.").message() == "the queue is full. Wait a little.");
}

TEST_CASE("the remedy for a failed registration names the limit in force") {
  const error e =
      error(return_type::insufficient_resources, return_subtype::resource_memory_region).from("ibv_reg_mr", ENOMEM);
  ::rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  ::rlimit small = before;
  small.rlim_cur = 48 * 1024; // the soft limit may always be lowered
  REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &small) == 0);
  CHECK_THAT(e.message(), support::contains_text("RLIMIT_MEMLOCK of this process is 48 KiB"));
  CHECK(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);
  CHECK_THAT(e.message(), !support::contains_text("is 48 KiB"));
  CHECK_THAT(e.message(), !support::contains_text("{memlock}"));
}

TEST_CASE("a failed registration does not name the limit of locked memory where there is none") {
  const error e =
      error(return_type::insufficient_resources, return_subtype::resource_memory_region).from("ibv_reg_mr", ENOMEM);
  ::rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  const ::rlimit none{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) SKIP("this user may not raise RLIMIT_MEMLOCK");
  const std::string text = e.message();
  CHECK(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);
  CHECK_THAT(text, support::contains_text("is unlimited. Register less"));
  CHECK_THAT(text, !support::contains_text("ulimit -l unlimited"));
}

namespace {

struct remedy_case {
  const char* verb;
  int errnum;
  const char* names; // the text that the remedy must contain
};

constexpr std::array remedy_cases{
    remedy_case{"ibv_reg_mr", ENOMEM, "RLIMIT_MEMLOCK"},
    remedy_case{"ibv_reg_dmabuf_mr", ENOMEM, "RLIMIT_MEMLOCK"},
    remedy_case{"ibv_reg_mr", EFAULT, "must be mapped"},
    remedy_case{"ibv_reg_mr", EINVAL, "local write"},
    remedy_case{"ibv_dereg_mr", EBUSY, "free the rmr first"},
    remedy_case{"ibv_get_device_list", ENOSYS, "modprobe ib_uverbs"},
    remedy_case{"ibv_get_device_list", ENODEV, "rdma link add rxe0 type rxe"},
    remedy_case{"ibv_open_device", EACCES, "/dev/infiniband/uverbs"},
    remedy_case{"ibv_open_device", EPERM, "/dev/infiniband/uverbs"},
    remedy_case{"ibv_open_device", ENOENT, "modprobe ib_uverbs"},
    remedy_case{"ibv_open_device", EMFILE, "ulimit -n"},
    remedy_case{"ibv_query_gid_ex", ENODATA, "IP address"},
    remedy_case{"rdma_create_event_channel", ENODEV, "modprobe rdma_ucm"},
    remedy_case{"rdma_create_event_channel", ENOENT, "modprobe rdma_ucm"},
    remedy_case{"rdma_create_event_channel", EACCES, "/dev/infiniband/rdma_cm"},
    remedy_case{"rdma_bind_addr", EADDRINUSE, "choose another"},
    remedy_case{"rdma_bind_addr", EADDRNOTAVAIL, "ip address"},
    remedy_case{"rdma_bind_addr", EACCES, "CAP_NET_BIND_SERVICE"},
    remedy_case{"rdma_bind_addr", ENODEV, "rdma link"},
    remedy_case{"rdma_listen", EADDRINUSE, "another"},
    remedy_case{"rdma_resolve_addr", ENODEV, "ip route get"},
    remedy_case{"rdma_resolve_addr", ENETUNREACH, "ip route get"},
    remedy_case{"rdma_resolve_addr", EHOSTUNREACH, "ip route get"},
    remedy_case{"rdma_resolve_addr", EINVAL, "both be IPv4"},
    remedy_case{"rdma_resolve_addr", ETIMEDOUT, "ARP"},
    remedy_case{"rdma_connect", ECONNREFUSED, "No program listens"},
    remedy_case{"rdma_connect", ETIMEDOUT, "4791"},
    remedy_case{"rdma_join_multicast", 524, "IPv4"},
    remedy_case{"ibv_create_qp", EINVAL, "max_ep"},
    remedy_case{"ibv_create_qp", ENOMEM, "RLIMIT_MEMLOCK"},
    remedy_case{"ibv_create_cq", EINVAL, "completion queue"},
    remedy_case{"ibv_create_cq", ENOMEM, "RLIMIT_MEMLOCK"},
    remedy_case{"ibv_create_srq", EINVAL, "ia.query()"},
    remedy_case{"ibv_create_comp_channel", EMFILE, "ulimit -n"},
    remedy_case{"ibv_create_ah", EINVAL, "GID"},
    remedy_case{"ibv_modify_qp", EINVAL, "MTU"},
    remedy_case{"ibv_modify_qp", ETIMEDOUT, "is the host up"},
    remedy_case{"ibv_post_send", ENOMEM, "dequeue completions first"},
    remedy_case{"ibv_post_recv", ENOMEM, "dequeue completions first"},
    remedy_case{"ibv_post_srq_recv", ENOMEM, "dequeue completions first"},
    remedy_case{"if_nametoindex", ENODEV, "ip link"},
    remedy_case{"mmap", ENOMEM, "ulimit -v"},
    remedy_case{"mmap", EAGAIN, "ulimit -l"},
    remedy_case{"pthread_create", EAGAIN, "ulimit -u"},
    remedy_case{"epoll_ctl", ENOSPC, "fs.epoll.max_user_watches"},
    remedy_case{"ibv_create_qp", EAGAIN, "rdma.max"},
    remedy_case{"rdma_bind_addr", EAGAIN, "rdma.max"},
    remedy_case{"ibv_create_srq", ENOMEM, "shared receive queue"},
    remedy_case{"ibv_alloc_mw", ENOMEM, "memory window"},
    remedy_case{"ibv_create_ah", ENOMEM, "address handles"},
    remedy_case{"rdma_create_id", ENOMEM, "connection manager"},
    remedy_case{"pipe2", EMFILE, "ulimit -n"},
    remedy_case{"epoll_create1", ENFILE, "fs.file-max"},
    remedy_case{"ibv_query_port", EIO, "kernel log"},
};

} // namespace

TEST_CASE("the most common failures have a remedy by system call and errno") {
  for (const auto& c : remedy_cases) {
    CAPTURE(c.verb, c.errnum);
    const std::string text = dat::detail::remedy(error(return_type::internal_error).from(c.verb, c.errnum));
    CHECK_THAT(text, support::contains_text(c.names));
    CHECK((text.back() == '.' || text.back() == '?'));
    CHECK_THAT(text, !support::contains_text("{"));
  }
}

TEST_CASE("every entry of the remedy tables can be reached and ends as a sentence") {
  for (const auto& r : dat::detail::call_remedies) {
    std::string verb(r.verb);
    if (const auto star = verb.find('*'); star != std::string::npos) verb.replace(star, 1, "");
    CAPTURE(verb, r.errnum);
    const error e = error(return_type::internal_error).from(verb.c_str(), r.errnum);
    CHECK(dat::detail::remedy_text(e) == r.text);
    const char last = std::string_view(r.text).back();
    CHECK((last == '.' || last == '?'));
  }
  for (const auto& r : dat::detail::state_remedies) {
    CAPTURE(to_string(r.type), to_string(r.subtype));
    CHECK(dat::valid_pair(r.type, r.subtype));
    CHECK(dat::detail::remedy_text(error(r.type, r.subtype)) == r.text);
    CHECK(std::string_view(r.text).back() == '.');
  }
}

TEST_CASE("a failure without a known remedy has none in its message") {
  CHECK(dat::detail::remedy(error(return_type::internal_error).from("ibv_query_device", EINVAL)).empty());
  CHECK(dat::detail::remedy(error(return_type::queue_empty)).empty());
  CHECK(dat::detail::remedy(error(return_type::invalid_state, return_subtype::evd_open)).empty());
}

TEST_CASE("a star in the remedy table matches any run of characters") {
  using dat::detail::matches;
  STATIC_REQUIRE(matches("ibv_reg_*mr", "ibv_reg_mr"));
  STATIC_REQUIRE(matches("ibv_reg_*mr", "ibv_reg_dmabuf_mr"));
  STATIC_REQUIRE_FALSE(matches("ibv_reg_*mr", "ibv_dereg_mr"));
  STATIC_REQUIRE_FALSE(matches("ab*ba", "aba")); // head and tail may not share characters
  STATIC_REQUIRE(matches("*", ""));
  STATIC_REQUIRE_FALSE(matches("ibv_open_device", "ibv_open"));
}

TEST_CASE("an error is a std::error_code of dat's category") {
  const error e(return_type::invalid_state, return_subtype::ep_connected);
  const std::error_code code = make_error_code(e);
  CHECK(code == e.code());
  CHECK(code.category() == dat::category());
  CHECK(std::string_view(dat::category().name()) == "dat");
  CHECK(code.value() == 0x00070033);
  CHECK(code.message() == "the object is not in a state that allows this: the endpoint is connected");
  CHECK(static_cast<bool>(code));
  CHECK(error(return_type::not_implemented).code().value() > 0);
}

TEST_CASE("a code equals its return type whatever the subtype, and no other type") {
  const std::error_code code = error(return_type::invalid_state, return_subtype::ep_connected).code();
  CHECK(code == return_type::invalid_state);
  CHECK(code != return_type::invalid_handle);
  const auto same = std::error_condition(code.value(), dat::category());
  const auto other = std::error_condition(error(return_type::invalid_state, return_subtype::ep_reserved).code().value(),
                                          dat::category());
  CHECK(code == same);
  CHECK(code != other);
}

TEST_CASE("a code equals the std::errc with the same meaning, and no other") {
  using T = return_type;
  using S = return_subtype;
  CHECK(error(T::timeout_expired).code() == std::errc::timed_out);
  CHECK(error(T::conn_qual_in_use).code() == std::errc::address_in_use);
  CHECK(error(T::port_in_use).code() == std::errc::address_in_use);
  CHECK(error(T::conn_qual_unavailable).code() == std::errc::address_not_available);
  CHECK(error(T::abort).code() == std::errc::operation_canceled);
  CHECK(error(T::invalid_handle).code() == std::errc::bad_file_descriptor);
  CHECK(error(T::invalid_parameter, S::arg3).code() == std::errc::invalid_argument);
  CHECK(error(T::length_error).code() == std::errc::message_size);
  CHECK(error(T::model_not_supported).code() == std::errc::not_supported);
  CHECK(error(T::not_implemented).code() == std::errc::not_supported);
  CHECK(error(T::provider_not_found).code() == std::errc::no_such_device);
  CHECK(error(T::privileges_violation).code() == std::errc::permission_denied);
  CHECK(error(T::protection_violation).code() == std::errc::operation_not_permitted);
  CHECK(error(T::queue_empty).code() == std::errc::resource_unavailable_try_again);
  CHECK(error(T::queue_full).code() == std::errc::no_buffer_space);
  CHECK(error(T::provider_already_registered).code() == std::errc::file_exists);
  CHECK(error(T::provider_in_use).code() == std::errc::device_or_resource_busy);
  CHECK(error(T::interrupted_call).code() == std::errc::interrupted);
  CHECK(error(T::comm_not_supported).code() == std::errc::protocol_not_supported);
  CHECK(error(T::insufficient_resources, S::resource_memory).code() == std::errc::not_enough_memory);
  CHECK(error(T::insufficient_resources, S::resource_memory_region).code() == std::errc::not_enough_memory);
  CHECK(error(T::insufficient_resources, S::resource_tep).code() == std::errc::no_buffer_space);
  CHECK(error(T::invalid_state, S::ep_connected).code() == std::errc::already_connected);
  CHECK(error(T::invalid_state, S::ep_unconnected).code() == std::errc::not_connected);
  CHECK(error(T::invalid_state, S::ep_disconnected).code() == std::errc::not_connected);
  CHECK(error(T::invalid_state, S::ep_actconnpending).code() == std::errc::connection_already_in_progress);
  CHECK(error(T::invalid_state, S::pz_in_use).code() == std::errc::device_or_resource_busy);
  CHECK(error(T::invalid_address, S::address_unreachable).code() == std::errc::host_unreachable);
  CHECK(error(T::invalid_address, S::address_unsupported).code() == std::errc::address_family_not_supported);
  CHECK(error(T::invalid_address, S::address_malformed).code() == std::errc::invalid_argument);

  CHECK(error(T::timeout_expired).code() != std::errc::address_in_use);
  CHECK(error(T::internal_error).code() != std::errc::invalid_argument);
  CHECK(error(T::internal_error).code() == T::internal_error);
}

TEST_CASE("an errno becomes the DAT error with the same meaning, and is kept", "[ERR-016][ERR-027]") {
  using T = return_type;
  constexpr std::array<std::pair<int, T>, 25> table{{
      {ENOMEM, T::insufficient_resources},
      {ENOSPC, T::insufficient_resources},
      {EMFILE, T::insufficient_resources},
      {ENFILE, T::insufficient_resources},
      {EAGAIN, T::insufficient_resources},
      {ENOBUFS, T::insufficient_resources},
      {EOPNOTSUPP, T::model_not_supported},
      {ENOSYS, T::model_not_supported},
      {524, T::model_not_supported}, // ENOTSUPP, which only the kernel defines
      {EADDRINUSE, T::conn_qual_in_use},
      {EADDRNOTAVAIL, T::conn_qual_in_use},
      {EBUSY, T::invalid_state},
      {EISCONN, T::invalid_state},
      {EALREADY, T::invalid_state},
      {ENOTCONN, T::invalid_state},
      {EFAULT, T::invalid_parameter},
      {EBADF, T::invalid_handle},
      {EACCES, T::privileges_violation},
      {EPERM, T::privileges_violation},
      {ENETUNREACH, T::invalid_address},
      {EHOSTUNREACH, T::invalid_address},
      {EINTR, T::insufficient_resources}, // only waits return interrupted_call
      {ETIMEDOUT, T::timeout_expired},
      {EIO, T::internal_error},
      {ENODEV, T::internal_error},
  }};
  for (const auto& [errnum, type] : table) {
    const error e = dat::detail::map_errno(errnum);
    CAPTURE(errnum, to_string(e.type()));
    CHECK(e.type() == type);
    CHECK(e.sys_errno() == errnum);
    CHECK(dat::valid_pair(e.type(), e.subtype()));
  }
  for (const int unknown : {523, 525}) CHECK(dat::detail::map_errno(unknown).type() == T::internal_error);
  CHECK(dat::detail::map_errno(-524).type() == T::model_not_supported);
  CHECK(dat::detail::map_errno(ENETUNREACH).subtype() == return_subtype::address_unreachable);
  for (int errnum = 1; errnum < 200; ++errnum) {
    CHECK(dat::detail::map_errno(errnum).type() != T::interrupted_call);
    CHECK(dat::detail::map_errno(errnum).type() != T::not_implemented);
  }
  SHOWS("ERR-030");
}

TEST_CASE("only an errno of exhaustion gets the resource that the call site names") {
  using dat::detail::map_errno;
  STATIC_REQUIRE(map_errno(ENOMEM, return_subtype::resource_tep).subtype() == return_subtype::resource_tep);
  STATIC_REQUIRE(map_errno(ENOSPC, return_subtype::resource_srq).subtype() == return_subtype::resource_srq);
  STATIC_REQUIRE(map_errno(ENOMEM).subtype() == return_subtype::none);
  STATIC_REQUIRE(map_errno(EINVAL, return_subtype::resource_tep).subtype() == return_subtype::none);
  STATIC_REQUIRE(map_errno(EBUSY, return_subtype::resource_tep).subtype() == return_subtype::none);
}

TEST_CASE("EINVAL is the caller's fault only where the call site says so", "[ERR-016]") {
  using dat::detail::map_errno;
  STATIC_REQUIRE(map_errno(EINVAL, return_subtype::none, true).type() == return_type::invalid_parameter);
  STATIC_REQUIRE(map_errno(EINVAL).type() == return_type::internal_error);
  STATIC_REQUIRE(map_errno(EIO, return_subtype::none, true).type() == return_type::internal_error);
}

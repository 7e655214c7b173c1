// dat::error: its values, its message, quoted texts and remedies.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/text/remedy.hpp>
#include <dat/error.hpp>

#include <support/catch.hpp>

#include <array>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using dat::error;
using dat::object_kind;
using dat::return_subtype;
using dat::return_type;

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

TEST_CASE("quoting a text reads no byte behind it") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const map =
      static_cast<char*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(map != MAP_FAILED);
  REQUIRE(::mprotect(map + page, page, PROT_NONE) == 0);
  char* const text = map + page - 3;
  std::memcpy(text, "12x", 3);
  CHECK(error(return_type::invalid_parameter).quote({text, 3}).quoted() == "12x");
  CHECK(error(return_type::invalid_parameter).quote({text + 3, 0}).quoted().empty());
  ::munmap(map, 2 * page);
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

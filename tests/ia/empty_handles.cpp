// Handles that are empty, closed or moved from.
// SPDX-License-Identifier: BSL-1.0
#include "everything.hpp"

#include <rig.hpp>

#include <dat/csp.hpp>
#include <dat/ep_params.hpp>
#include <dat/memory.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>

using namespace std::chrono_literals;
using dat::object_kind;
using dat::return_type;
using rig::must;
using rig::patience;
using namespace objects;

TEST_CASE("an empty or closed handle takes no context and returns none", "[object][CTX-016][IA-031][REQ-004]") {
  NEEDS_FEATURE(windows);
  const auto refused = [](auto& handle) {
    INFO(to_string(handle.kind));
    const dat::error wrong(return_type::invalid_handle, handle_subtype(handle.kind));
    const auto set = handle.set_context(1);
    REQUIRE_FALSE(set);
    CHECK(set.error() == wrong);
    CHECK(set.error().call() == "set_context");
    const auto get = handle.context();
    REQUIRE_FALSE(get);
    CHECK(get.error() == wrong);
    CHECK(get.error().call() == "context");
    SHOWS("CTX-009", "ERR-017", "ERR-032");
  };
  everything all;
  all.each([&](auto& handle) {
    std::remove_reference_t<decltype(handle)> empty;
    refused(empty);
    CHECK(empty.template context<int>() == nullptr);
    CHECK(empty.identity() == nullptr);
    CHECK(empty.owner() == nullptr);
  });
  int session = 0;
  all.each([&](auto& handle) { must(handle.set_context(&session)); });
  must(all.ia.close(dat::close_mode::abrupt));
  all.each([&](auto& handle) {
    // The target of the context of an ended object can still be found, for clean-up.
    if (handle.kind != object_kind::ia) CHECK(handle.template context<int>() == &session);
    refused(handle);
  });
}

TEST_CASE("every call on a handle that is empty or moved from returns invalid_handle", "[object][CTX-016]") {
  NEEDS_FEATURE(windows);
  everything all;
  const auto refused = [](const auto& r) {
    REQUIRE_FALSE(r);
    CHECK(r.error().type() == return_type::invalid_handle);
  };
  /// Makes the calls on a default-constructed handle, and on one that was moved from.
  const auto on_both = []<class H>(H& handle, auto calls) {
    INFO(to_string(handle.kind));
    H empty;
    calls(empty);
    H keeps_object = std::move(handle);
    calls(handle); // NOLINT(bugprone-use-after-move)
    handle = std::move(keeps_object);
  };
  const auto remote = all.ia.address();
  on_both(all.ia, [&](dat::ia& h) {
    refused(h.create_pz());
    refused(h.create_evd<dat::stream::dto>(8));
    refused(h.create_cno());
    refused(h.create_psp(rig::port(), all.evd));
    refused(h.create_psp_any(all.evd));
    refused(h.create_csp(tcp, all.evd));
    refused(h.create_rsp(rig::port(), all.far, all.evd));
    refused(h.create_ep<dat::rc>());
    refused(h.query());
    refused(h.query<dat::provider_attributes>());
    refused(h.address(dat::address_family::ipv4));
    refused(h.close());
    CHECK(h.native_handle() == nullptr);
  });
  on_both(all.pz, [&](dat::pz& h) {
    refused(h.create_ep<dat::rc>(all.evd));
    refused(h.create_srq());
    refused(h.create_rmr());
    refused(h.create_rmr_for_ep());
    refused(h.register_memory(all.memory, all_rights));
    refused(h.close());
  });
  const auto evd = [&](auto& h) {
    refused(h.wait(0us));
    refused(h.dequeue());
    refused(h.wake());
    refused(h.set_unwaitable());
    refused(h.clear_unwaitable());
    refused(h.modify_cno(all.cno));
    refused(h.enable());
    refused(h.disable());
    refused(h.resize(8));
    CHECK(must(h.query()).qlen == 0); // dat_evd_query allows the null evd: EVD-022
    refused(h.close());
    CHECK(h.drain([](auto&) {}) == 0);
  };
  on_both(all.evd, evd);
  on_both(all.evd, [&](dat::evd<all_streams>& h) { refused(h.wait(0us, 1)); });
  auto software = must(all.ia.create_evd<dat::stream::software>(4));
  on_both(software, [&](dat::evd<dat::stream::software>& h) { refused(h.post(1)); });
  on_both(all.completions_only, evd);
  on_both(all.cno, [&](dat::cno& h) {
    refused(h.wait(0us));
    refused(h.modify_agent({}));
    refused(h.query());
    refused(h.close());
    CHECK(h.fd() == -1);
  });
  const auto service_point = [&](auto& h) {
    refused(h.query());
    refused(h.close());
  };
  on_both(all.psp, service_point);
  on_both(all.csp, service_point);
  on_both(all.rsp, service_point);
  on_both(all.lmr, [&](region& h) {
    refused(h.slice(0, 1));
    refused(h.remote(0, 1));
    refused(dat::query(h));
    refused(h.close());
  });
  on_both(all.rmr, [&](dat::rmr& h) {
    refused(h.bind(all.ep, dat::bind{all.lmr, dat::remote_read}));
    refused(h.unbind(all.ep));
    refused(h.query());
    refused(h.close());
  });
  on_both(all.srq, [&](dat::srq& h) {
    refused(h.post(dat::recv{}));
    refused(h.set_low_watermark(1));
    refused(h.resize(8));
    refused(h.query());
    refused(h.close());
  });
  on_both(all.ep, [&](dat::ep<dat::rc>& h) {
    refused(h.post(dat::recv{}));
    refused(h.post(dat::send{}));
    refused(h.connect(remote, rig::port(), patience));
    refused(h.common_connect(remote.with_port(5), patience));
    refused(h.dup_connect(all.far, patience));
    refused(h.disconnect());
    refused(h.reset());
    refused(h.modify({.max_recv_dtos = 5}));
    refused(h.query());
    refused(h.status());
    refused(h.recv_query());
    refused(h.set_watermark(1, 2));
    refused(h.local_address());
    refused(h.remote_address());
    refused(h.close());
    CHECK(h.native_handle() == nullptr);
  });
  on_both(all.request, [&](dat::cr& h) {
    refused(h.query());
    refused(h.accept());
    refused(h.accept(all.far));
    refused(h.reject());
    refused(h.handoff(rig::port()));
  });
  must(all.request.accept(all.far)); // the objects are unchanged
}

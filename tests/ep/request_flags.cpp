// Which flags each operation can be given, by its type.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
#include <dat/rmr.hpp>
#include <dat/ud.hpp>

#include <support/record.hpp>

#include <support/catch.hpp>

namespace request_flags {
namespace {

template <class D>
concept suppresses_completion = requires(D& d) {
  d.suppress_completion();
};
template <class D>
concept suppresses_notification = requires(D& d) {
  d.suppress_notification();
};
template <class D>
concept solicits = requires(D& d) {
  d.solicited();
};
template <class D>
concept fences = requires(D& d) {
  d.fence();
};
template <class D>
concept inlines = requires(D& d) {
  d.inlined();
};

/// Whether an operation has exactly these flags.
template <class D>
constexpr bool has(bool completion, bool notification, bool solicited, bool fence) {
  return suppresses_completion<D> == completion && suppresses_notification<D> == notification &&
         solicits<D> == solicited && fences<D> == fence;
}

constexpr auto local = dat::mem_priv::local_read | dat::mem_priv::local_write;
constexpr auto remote = dat::mem_priv::remote_read | dat::mem_priv::remote_write | dat::mem_priv::remote_atomic;
using here = dat::local_segment<std::uint64_t, local>;
using there = dat::remote_segment<std::uint64_t, remote>;
using region = dat::lmr<std::uint64_t, local>;

using plain_send = decltype(dat::send{here()});
using closing_send = decltype(dat::send_with_invalidate{there()});
using plain_write = decltype(dat::rdma_write{here(), there()});
using plain_read = decltype(dat::rdma_read{here(), there()});
using plain_recv = decltype(dat::recv{here()});
using plain_bind = decltype(dat::bind{std::declval<const region&>(), dat::remote_read});
using plain_add = decltype(dat::ib::fetch_and_add{here(), there(), 1});
using plain_swap = decltype(dat::ib::compare_and_swap{here(), there(), 1, 2});
using datagram = decltype(dat::ib::send_to{here(), std::declval<const dat::ib::address_handle&>()});

} // namespace

TEST_CASE("each operation has the flags of its table, and no others",
          "[dto][type][DTO-075][DTO-111][DTO-140][DTO-152][DTO-162][DTO-102][IBX-064]"
          "[IBX-046]") {
  STATIC_REQUIRE(has<plain_send>(true, true, true, true));
  STATIC_REQUIRE(has<closing_send>(true, true, true, true));
  STATIC_REQUIRE(has<plain_write>(true, true, false, true));
  STATIC_REQUIRE(has<plain_read>(true, true, false, true));
  STATIC_REQUIRE(has<plain_bind>(true, true, false, true));
  STATIC_REQUIRE(has<dat::unbind>(true, true, false, true));
  STATIC_REQUIRE(has<plain_recv>(false, true, false, false));
  STATIC_REQUIRE_FALSE(inlines<plain_recv>);
  STATIC_REQUIRE(has<plain_add>(true, true, false, true));
  STATIC_REQUIRE(has<plain_swap>(true, true, false, true));
  STATIC_REQUIRE(suppresses_completion<datagram>);
  STATIC_REQUIRE(suppresses_notification<datagram>);
  STATIC_REQUIRE(solicits<datagram>);
}

} // namespace request_flags

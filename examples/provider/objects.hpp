// The objects behind the handles, one struct for each type of handle: an object of dat, and what C wants to know of it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "handle.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <dat/csp.hpp>
#include <dat/dat.hpp>
#include <dat/dynamic.hpp>
#include <dat/ep_params.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <sys/socket.h>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace provider {

using dat::return_subtype;
using dat::return_type;

/// A line of dat.conf: the table that its handles point to, and the adapter that it names.
struct conf_line {
  DAT_PROVIDER table{};
  std::string name;    ///< of the ia, as consumers open it
  std::string adapter; ///< as dat::ia::open takes it
  DAT_PROVIDER_INFO info{};
  bool loaded = false; ///< from dat_provider_init to dat_provider_fini
};

/// The counters of one kind of object (extended operation QUERY_COUNTERS). Atomic counters may lose a count when two
/// threads count at the same time. A lock protects the others.
template <std::size_t N, class Word = std::atomic<std::uint64_t>>
class tallies {
public:
  void add(std::size_t which, std::uint64_t n = 1) noexcept {
    if constexpr (is_atomic)
      values_[which].store(values_[which].load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    else
      values_[which] += n;
  }
  /// Returns a counter. With `reset`, the counter then starts from zero.
  [[nodiscard]] std::uint64_t read(std::size_t which, bool reset) noexcept {
    if (!reset) return values_[which];
    if constexpr (is_atomic)
      return values_[which].exchange(0);
    else
      return std::exchange(values_[which], 0);
  }

private:
  static constexpr bool is_atomic = !std::is_same_v<Word, std::uint64_t>;
  std::array<Word, N> values_{};
};

/// A copy of a peer's private data, of which rdma_cm carries fewer than 256 bytes.
class kept_data {
public:
  void assign(std::span<const std::byte> data) noexcept {
    size_ = std::min(data.size(), bytes_.size());
    std::copy_n(data.begin(), size_, bytes_.begin());
  }
  [[nodiscard]] void* data() noexcept { return size_ != 0 ? bytes_.data() : nullptr; }
  [[nodiscard]] DAT_COUNT size() const noexcept { return static_cast<DAT_COUNT>(size_); }

private:
  std::array<std::byte, 256> bytes_{};
  std::size_t size_ = 0;
};

/// An object with the type of its handle, and the subtype of errors that name the handle.
template <DAT_HANDLE_TYPE Type, return_subtype Error>
struct object_of : object {
  static constexpr DAT_HANDLE_TYPE handle_type = Type;
  static constexpr return_subtype handle_error = Error;
  explicit object_of(adapter& of) noexcept : object(Type, of) {}
};

struct pz_object : object_of<DAT_HANDLE_TYPE_PZ, return_subtype::handle_pz> {
  pz_object(adapter& of, dat::pz made) noexcept : object_of(of), pz(std::move(made)) {}
  dat::pz pz;
};

/// The part of a region that posts use: the whole region as a segment for each use, empty where the region lacks the
/// right.
struct known_region {
  std::uint32_t key = 0; ///< lmr_context
  dat::local_segment<std::byte, dat::mem_priv::local_read> readable;
  dat::local_segment<std::byte, dat::mem_priv::local_write> writable;

  /// The segment of `length` bytes that begins at `address`.
  template <dat::mem_priv P>
  [[nodiscard, gnu::always_inline]] inline auto part(DAT_VADDR address, DAT_SEG_LENGTH length,
                                                     dat::privileges<P>) const noexcept {
    const auto of = [=](const auto& whole) {
      return whole.slice(address - reinterpret_cast<std::uintptr_t>(whole.data()), length);
    };
    if constexpr (P == dat::mem_priv::local_read)
      return of(readable);
    else
      return of(writable);
  }
};

inline const known_region no_region; ///< which no key names

struct lmr_object : object_of<DAT_HANDLE_TYPE_LMR, return_subtype::handle_lmr> {
  lmr_object(adapter& of, dat::dynamic::lmr made) noexcept : object_of(of), lmr(std::move(made)) {}
  ~lmr_object() override; // removes it from the table of regions
  dat::dynamic::lmr lmr;
  known_region known;
  DAT_LMR_PARAM param{};       ///< as query returns it
  dat::shared_cookie cookie{}; ///< of shared memory
};

struct rmr_object : object_of<DAT_HANDLE_TYPE_RMR, return_subtype::handle_rmr> {
  rmr_object(adapter& of, dat::rmr made, DAT_PZ_HANDLE of_zone) noexcept
      : object_of(of), rmr(std::move(made)), zone(of_zone) {}
  dat::rmr rmr;
  DAT_PZ_HANDLE zone;
  short_lock binding; ///< held by a bind: calls on one dat::rmr must not overlap
};

struct cno_object;
/// An agent of C that a cno calls.
struct cno_agent {
  cno_object& of;
  DAT_OS_WAIT_PROXY_AGENT given;
};
struct cno_object : object_of<DAT_HANDLE_TYPE_CNO, return_subtype::handle_cno> {
  using object_of::object_of;
  dat::cno cno;
  std::mutex mutex; ///< guards the following
  DAT_PROXY_TYPE proxy = DAT_PROXY_TYPE_NONE;
  std::list<cno_agent> agents; ///< in their order; dat calls each at most once, and none after a later one
};

struct evd_object : object_of<DAT_HANDLE_TYPE_EVD, return_subtype::handle1> {
  evd_object(adapter& of, dat::dynamic::evd made) noexcept : object_of(of), evd(std::move(made)) {}
  dat::dynamic::evd evd;
  std::atomic<DAT_CNO_HANDLE> cno{nullptr};
  tallies<DCNT_EVD_ALL_COUNTERS> counters;
};

struct srq_object : object_of<DAT_HANDLE_TYPE_SRQ, return_subtype::handle_srq> {
  srq_object(adapter& of, dat::srq made, DAT_PZ_HANDLE of_zone) noexcept
      : object_of(of), srq(std::move(made)), zone(of_zone) {}
  void issued() noexcept override { (void)srq.set_context(dat::cookie(self)); }
  dat::srq srq;
  DAT_PZ_HANDLE zone;
  short_lock posting;                     ///< guards the following
  const known_region* known = &no_region; ///< the region that was posted last
};

struct ep_object : object_of<DAT_HANDLE_TYPE_EP, return_subtype::handle_ep> {
  ep_object(adapter& of, dat::ep<dat::rc> made, const DAT_EP_PARAM& given = {}) noexcept
      : object_of(of), rc(std::move(made)), ref(rc), max_inline(rc.attributes().max_inline), param(given) {}
  ep_object(adapter& of, dat::ep<dat::ud> made, const DAT_EP_PARAM& given) noexcept
      : object_of(of), ud(std::move(made)), ref(ud), max_inline(ud.max_inline()), param(given) {}
  [[nodiscard]] bool is_datagram() const noexcept { return static_cast<bool>(ud); }
  void issued() noexcept override {
    (void)(is_datagram() ? ud.set_context(dat::cookie(self)) : rc.set_context(dat::cookie(self)));
    start_posts();
  }
  /// Lets no post begin. False while one is under way, and its queue is not stopped yet.
  [[nodiscard]] bool stop_posts() noexcept;
  /// Lets posts begin in the queues that are stopped.
  void start_posts() noexcept;
  /// Waits until no post is under way that began before, and forgets the regions that they used.
  void await_posts() noexcept;

  dat::ep<dat::rc> rc; ///< one of the two is empty
  dat::ep<dat::ud> ud;
  dat::ep_ref ref;                ///< for posts, which are the same for both
  const std::uint32_t max_inline; ///< requests of at most so many bytes carry their data
  bool made_for_request = false;  ///< by a psp or an rsp
  // A post to a queue guards the region that was posted last, that of the next post usually, and the queue's counters.
  const known_region* known[2] = {&no_region, &no_region};
  tallies<DCNT_EP_ALL_COUNTERS, std::uint64_t> counters;
  std::atomic<bool> stopped[2] = {true, true}; ///< no post can begin

  std::mutex mutex; ///< guards the following
  DAT_EP_PARAM param;
  sockaddr_storage local{}; ///< where param points to
  sockaddr_storage remote{};
  kept_data private_data; ///< of the last connection event
};

/// A post to a queue of an endpoint, for its duration. No other post to the queue and no end of the endpoint can
/// overlap it.
class post_to : public use<ep_object> {
public:
  /// Waits for the post of another thread.
  post_to(DAT_HANDLE named, handle::queue to) noexcept;
  /// Is false while another thread posts.
  post_to(handle& called, handle::queue to) noexcept
      : use(&called, called.idle[to].exchange(nullptr, std::memory_order_acquire)), to_(to) {}
  ~post_to() {
    if (*this) at_->idle[to_].store(object_, std::memory_order_release);
  }
  /// The region that was posted last.
  [[nodiscard]] const known_region*& region() const noexcept { return object_->known[to_]; }

private:
  const handle::queue to_;
};

/// A service point of dat.
template <class Point, DAT_HANDLE_TYPE Type, return_subtype Error>
struct service_object : object_of<Type, Error> {
  service_object(adapter& of, Point made, DAT_EVD_HANDLE to) noexcept
      : object_of<Type, Error>(of), point(std::move(made)), id(point.id()), evd(to) {}
  Point point;
  const dat::service_id id;
  const DAT_EVD_HANDLE evd;
};
struct psp_object : service_object<dat::psp, DAT_HANDLE_TYPE_PSP, return_subtype::handle_psp> {
  using service_object::service_object;
  DAT_PSP_FLAGS flags = DAT_PSP_CONSUMER_FLAG;
  dat::ib::datagram_service datagrams; ///< on the same qualifier; empty where the adapter has none
};
using rsp_object = service_object<dat::rsp, DAT_HANDLE_TYPE_RSP, return_subtype::handle_rsp>;
struct csp_object : service_object<dat::csp, DAT_HANDLE_TYPE_CSP, return_subtype::handle_csp> {
  using service_object::service_object;
  std::mutex mutex; ///< guards the following, which query points to
  DAT_COMM comm{};
  sockaddr_storage address{};
};

struct cr_object : object_of<DAT_HANDLE_TYPE_CR, return_subtype::handle_cr> {
  using object_of::object_of;
  dat::cr cr; ///< one of the two is empty
  dat::ib::datagram_request datagrams;
  DAT_EP_HANDLE local_ep = DAT_HANDLE_NULL; ///< of an rsp, or of a psp that creates endpoints
  sockaddr_storage local{};
  sockaddr_storage remote{};
  kept_data private_data;
};

/// A peer of a datagram endpoint: what the member `ah` of DAT_IB_ADDR_HANDLE points to.
struct peer_object : object_of<DAT_HANDLE_TYPE_EXTENSION_BASE, return_subtype::handle1> {
  peer_object(adapter& of, dat::ib::address_handle made) noexcept : object_of(of), to(std::move(made)) {}
  dat::ib::address_handle to;
};

/// The regions of an adapter by their keys.
class region_table {
public:
  /// The region with a key; null when there is none.
  [[nodiscard]] const lmr_object* find(std::uint32_t key) const noexcept {
    const std::lock_guard lock(lock_);
    const auto at = by_key_.find(key);
    return at != by_key_.end() ? at->second : nullptr;
  }
  /// Adds a region. False without memory.
  [[nodiscard]] bool add(const lmr_object& region) noexcept;
  /// Removes a region, if it is in the table: another region may have its key.
  void remove(const lmr_object& region) noexcept;

private:
  mutable short_lock lock_; // taken by posts
  std::unordered_map<std::uint32_t, const lmr_object*> by_key_;
};

/// An open ia, with the list of its objects.
class adapter : public object_of<DAT_HANDLE_TYPE_IA, return_subtype::handle_ia> {
public:
  adapter(const conf_line& of, dat::ia opened) noexcept : object_of(*this), from(of), ia(std::move(opened)) {}
  ~adapter() override { delete_objects(); }

  /// A handle for a new object of this adapter; null without memory, and then the object is deleted.
  template <class T>
  [[nodiscard]] handle* add(std::unique_ptr<T> made) noexcept {
    return made && list(*made) ? made.release()->self : nullptr;
  }
  /// Takes an object out of the list and deletes it.
  void remove(object& o) noexcept;
  /// Whether it has objects besides the evd of asynchronous events. The caller holds `mutex`, as for `retire` and
  /// `restore`.
  [[nodiscard]] bool in_use() const noexcept;
  /// Makes the handles of all objects invalid. False while a call that does not sleep is under way.
  [[nodiscard]] bool retire() noexcept;
  /// Makes them valid again.
  void restore() noexcept;
  /// Deletes all objects, when no call uses them.
  void delete_objects() noexcept;
  /// Waits until no post is under way that began before.
  void await_posts() noexcept;
  /// The handle of the first object of a type for which `is` is true.
  template <class T, class Is>
  [[nodiscard]] DAT_HANDLE find(Is is) noexcept {
    const std::lock_guard lock(mutex);
    for (object* o = objects_[index(T::handle_type)]; o; o = o->next)
      if (is(static_cast<T&>(*o))) return o->self;
    return DAT_HANDLE_NULL;
  }
  [[nodiscard]] DAT_HANDLE evd_of(dat::evd_id id) noexcept {
    return id ? find<evd_object>([id](const evd_object& e) { return e.evd.id() == id; }) : DAT_HANDLE_NULL;
  }

  const conf_line& from;
  dat::ia ia;
  short_lock mutex; ///< guards the list; no region ends while it is held
  region_table regions;
  DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
  tallies<DCNT_IA_ALL_COUNTERS> counters;
  sockaddr_storage address{}; ///< what ia_address_ptr points to
  // What the named attributes of ia_query point to.
  dat::ia_attributes attributes;
  dat::provider_attributes provider_attributes;
  std::array<DAT_NAMED_ATTR, dat::named_attributes::capacity> transport{};
  std::array<DAT_NAMED_ATTR, dat::named_attributes::capacity> vendor{};
  static constexpr std::size_t more_names = 9; ///< those that OFA's provider has besides
  std::array<DAT_NAMED_ATTR, dat::named_attributes::capacity + more_names> specific{};

private:
  [[nodiscard]] static std::size_t index(DAT_HANDLE_TYPE t) noexcept { return static_cast<std::size_t>(t); }
  [[nodiscard]] bool list(object& made) noexcept;
  std::array<object*, DAT_HANDLE_TYPE_EXTENSION_BASE + 1> objects_{};
};

} // namespace provider

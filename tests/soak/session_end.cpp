// The end of one connection, and whether it was as agreed.
// SPDX-License-Identifier: BSL-1.0
#include "session.hpp"

#include <dat/descriptor.hpp>

#include <string>

namespace soak {

using namespace std::chrono_literals;

void session::begin_end(ending how) {
  if (ending_ || ended_) return;
  ending_ = true;
  if (client_ && finished_ == plan_.total) successful_ = true;
  if (how == ending::client_leaves || how == ending::server_leaves) {
    leaving_ = true;
    return;
  }
  const bool graceful = how == ending::client_graceful || how == ending::client_early || how == ending::server_graceful;
  const auto done = ep_.disconnect(graceful ? dat::close_mode::graceful : dat::close_mode::abrupt);
  if (!done) fault("disconnect was refused: " + done.error().message());
}

void session::on_end(const char* event, bool after_established) {
  if (ended_) return fault(std::string("a second terminal event: ") + event);
  const bool called_off = ending_ && !up_ && std::string_view(event) == "disconnected"; // this side gave up the attempt
  if (after_established != up_ && !called_off)
    fault(std::string(event) + (up_ ? " after" : " without") + " established");
  ended_ = true;
  end_ = event;
  ended_at_ = clock::now();
}

void session::leave() {
  if (ep_) {
    (void)ep_.set_context(dat::cookie()); // it cannot fail on an open endpoint, and the next call frees a closed one
    (void)ep_.close();
  }
  book_.drop();
  mine_->state = static_cast<std::uint64_t>(outcome::left);
}

void session::cut() {
  if (ended_) return;
  ending_ = true;
  if (auto done = ep_.disconnect(); !done) leaving_ = true;
}

std::string session::state_of_queue_pair() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int err = ibv_query_qp(ep_.native_handle(), &attr, IBV_QP_STATE, &init);
  return err != 0 ? "unknown, errno " + std::to_string(err) : std::to_string(attr.qp_state);
}

bool session::over(clock::time_point now) {
  if (leaving_ || (!pending_ && !ended_)) {
    leave();
    return true;
  }
  if (ended_) {
    const bool unconnected = ep_.state() == dat::ep_state::unconnected; // the attempt failed: its receives stay posted
    if (book_.outstanding() == 0 || unconnected) {
      book_.drop();
      mine_->state = static_cast<std::uint64_t>(outcome::drained);
      return true;
    }
    if (now - ended_at_ < patience) return false;
    fault(std::to_string(book_.outstanding()) + " operations were not flushed, " +
          std::to_string(book_.outstanding(operation::receive)) + " of them receives; " + (up_ ? "established, " : "") +
          end_ + ", " + std::string(dat::to_string(ep_.state())) + ", queue pair in state " + state_of_queue_pair());
    leave();
    return true;
  }
  if (!up_) {
    if (now - began_ < attempt_limit_ + patience) return false;
    fault("an attempt to connect has no outcome");
    leave();
    return true;
  }
  const auto silence = now - moved_;
  const auto most = client_ ? 25s : 50s;
  if (!client_ && silence > 3s && now - pinged_ > 3s && !ending_) {
    pinged_ = now;
    send(message_kind::keep_alive, 0); // fails when the peer has ended
  }
  if (silence > most && !stall_cut_) {
    owner_->note(*lane_, "no progress; the connection is cut");
    stall_cut_ = true;
    cut();
  }
  if (silence < most + patience) return false;
  fault("a disconnect brought no terminal event");
  leave();
  return true;
}

} // namespace soak

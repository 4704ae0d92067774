#pragma once

#include <string>

struct MHD_Daemon;

namespace athanor::serve {

/// A socket that listens on a port. Not closed before this goes.
class Listener {
 public:
  /// host: an address or a name of this machine; port 0: one that is free. Throws ArgumentError where the
  /// host is none of this machine's, or the port cannot be had.
  Listener(const std::string& host, int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int socket() const { return socket_; }
  bool is_ipv6() const { return is_ipv6_; }
  /// Whether only this machine reaches it.
  bool is_loopback() const { return is_loopback_; }
  /// http://127.0.0.1:8080
  std::string url() const;
  /// Hands those who have connected, and were not accepted yet, to a daemon that is quiesced; refuses others.
  void stop(MHD_Daemon* daemon) const;

 private:
  int socket_ = -1;
  bool is_ipv6_ = false, is_loopback_ = false;
};

}  // namespace athanor::serve

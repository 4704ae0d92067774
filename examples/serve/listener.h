#pragma once

#include <string>

struct MHD_Daemon;

namespace athanor::serve {

/// A socket that listens on a port, closed by the destructor.
class Listener {
 public:
  /// host: an address or name of this machine; port 0: a free one. Throws ArgumentError if the host is not
  /// this machine's, or the port is not available.
  Listener(const std::string& host, int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int socket() const { return socket_; }
  bool is_ipv6() const { return is_ipv6_; }
  /// Whether only this machine can reach it.
  bool is_loopback() const { return is_loopback_; }
  /// http://127.0.0.1:8080
  std::string url() const;
  /// Passes pending connections to a daemon that is quiesced; refuses later ones.
  void stop(MHD_Daemon* daemon) const;

 private:
  int socket_ = -1;
  bool is_ipv6_ = false, is_loopback_ = false;
};

}  // namespace athanor::serve

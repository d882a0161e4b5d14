// What one user may take of a monitor that serves several: connections, descriptors and jobs.
//
// Concept. Root and the monitor's owner are not bounded. Each other user is, and all others
// together are, so that connections and descriptors are left for root whatever they do. A user is
// an account (owner.h) here: root in a container is another user, and bounded.
//
// Threading: one thread; a Seat may be given back on any.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "monitor/platform/owner.h"

namespace switchyard::monitor {

class Users {
 public:
  struct Most {
    std::size_t connections = 1024;  // of one user
    std::size_t jobs = 256;          // of one user
    std::size_t descriptors = 0;     // that this process may open; 0: as RLIMIT_NOFILE says
  };
  Users(uid_t owner, Most most);
  ~Users();
  Users(const Users&) = delete;
  Users& operator=(const Users&) = delete;

  // A part of a user's share; it is given back when the last copy goes.
  using Seat = std::shared_ptr<void>;
  // A connection, with all descriptors that it costs at most. Null: the user has as many as it may.
  Seat connect(uid_t uid);
  // A connection that is only told why it is refused. Null: too many of them are being told.
  Seat refuse(uid_t uid);
  // Descriptors that a client sent, until they are kept elsewhere or closed.
  Seat hold(uid_t uid, std::size_t descriptors);

  bool bounded(uid_t uid) const { return uid != 0 && uid != owner_; }
  bool may_make_job(uid_t uid, std::size_t has) const { return !bounded(uid) || has < most_.jobs; }
  // From now on; who has more keeps it. How many descriptors there are stays as it was. `rules`:
  // the places that say so.
  struct Rules {
    std::string connections = "'switchyardd --connections-per-user'";
    std::string jobs = "'switchyardd --jobs-per-user'";
  };
  void set(Most most, Rules rules);
  // The message to a refused user.
  std::string too_many_connections(const Owner& who) const;
  std::string too_many_jobs(const Owner& who) const;

 private:
  struct Taken;
  Seat take(uid_t uid, std::size_t connections, std::size_t descriptors, std::size_t refusals);

  uid_t owner_;
  Most most_;
  Rules rules_;
  std::shared_ptr<Taken> taken_;
};

}  // namespace switchyard::monitor

"""__remote_log_metadata as a topic: made when it is needed, and written anew so that it does not grow for ever."""

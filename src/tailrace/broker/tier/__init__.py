"""Remote storage of this broker, where remote.log.storage.system.enable is set; else none of it is loaded."""
